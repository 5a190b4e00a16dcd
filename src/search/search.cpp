#include "search/search.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <utility>

#include "search/enumerate.h"
#include "search/growth.h"
#include "search/micro_batch.h"
#include "search/plan_match.h"

namespace plimsoll::engine {
namespace {

// Returns the candidate with the chosen settings of `last` and of all levers before it in the table, and with all
// levers after it off.
const Candidate& up_to(const Lever& last, const LeverTable& table, const Candidate& chosen,
                       const std::vector<Candidate>& candidates) {
  const auto matches = [&](const Candidate& candidate) {
    bool behind = false;
    for (const Lever& lever : table) {
      const int64_t wanted = behind ? 0 : chosen.settings.of(lever.name);
      if (lever.is_priced() && candidate.settings.of(lever.name) != wanted) return false;
      behind = behind || lever.name == last.name;
    }
    return true;
  };
  const auto found = std::find_if(candidates.begin(), candidates.end(), matches);
  return found == candidates.end() ? chosen : *found;
}

// Computes what each lever saves and costs when the levers are added in the table's order. The candidates in between
// were compiled before the chosen one.
void price_levers(const LeverTable& table, const Candidate& chosen, SearchResult& result) {
  Bytes arena = result.unlevered_arena_bytes;
  double seconds = result.unlevered_seconds;
  for (const Lever& lever : table) {
    const auto used = std::find_if(result.plan.levers.begin(), result.plan.levers.end(),
                                   [&](const LeverUse& use) { return use.name == lever.name; });
    if (used == result.plan.levers.end()) continue;
    const Candidate& with = up_to(lever, table, chosen, result.candidates);
    used->saves_bytes = std::exchange(arena, with.arena_bytes) - with.arena_bytes;
    used->costs_seconds = with.seconds - std::exchange(seconds, with.seconds);
  }
}

}  // namespace

Result<SearchResult> search(const SearchRequest& request) {
  const auto start = std::chrono::steady_clock::now();
  // Without a loss scale, small float16 gradients would become zero.
  assert(request.batch == 0 || request.graph.precision.compute != DType::kFloat16 ||
         request.model->optimizer().loss_scale);
  PLIMSOLL_TRY(check_micro_batch(request));
  SearchResult result;
  Selection selection(request, result);
  PLIMSOLL_TRY(try_candidates(request, request.find_least, selection));
  if (!selection.found() && !request.find_least) {  // the error must say what the smallest plan needs
    SearchRequest again = request;
    again.find_least = true;
    return search(again);
  }
  result.fits = selection.found() || selection.only_smallest_fits();
  if (request.find_least) result.least_bytes = selection.least();
  result.plan = selection.take();
  if (request.only_price) return result;
  PLIMSOLL_TRY(fill_growth(request, result));
  result.least_compute_seconds = selection.chosen().least_seconds;
  price_levers(*request.levers, selection.chosen(), result);
  PLIMSOLL_ASSIGN(result.plan.program, program_digest(request, result.plan.batch.micro));
  PLIMSOLL_TRY(validate(result.plan));
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace plimsoll::engine
