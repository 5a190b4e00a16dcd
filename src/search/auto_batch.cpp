#include "search/auto_batch.h"

#include "levers/split_batch.h"
#include "search/compile.h"
#include "search/enumerate.h"
#include "search/micro_batch.h"
#include "search/selection.h"

namespace plimsoll::engine {
namespace {

struct Timed {
  bool fits = false;
  bool uses_levers = false;
  double per_sample = 0;  // seconds
};

// Plans the batch without levers, and with them if that does not fit.
Result<Timed> time_of(SearchRequest request) {
  // If the bytes of a batch overflow, the batch is too large for any budget.
  if (!request.model->check_batch(request.batch)) return Timed();
  const auto timed = [&](const Plan& plan, bool uses_levers) {
    return Timed{true, uses_levers, plan.step_seconds / static_cast<double>(request.batch)};
  };
  PLIMSOLL_ASSIGN(const auto plain, compile(request, cut_into(request, request.piece())));
  if (plain && (request.budget == 0 || plain->peak_bytes() <= request.budget)) return timed(*plain, false);
  request.forbidden.emplace(kMicroBatch);
  request.forbidden.emplace(kSplit);
  SearchResult result;
  Selection selection(request, result);
  PLIMSOLL_TRY(try_candidates(request, false, selection));
  return selection.found() ? timed(selection.take(), true) : Timed();
}

}  // namespace

Result<BestBatch> best_batch(const std::function<SearchRequest(int64_t)>& request_of, int64_t samples) {
  const int64_t steps = request_of(1).accumulation_steps;
  const int64_t limit = samples > 0 ? samples / steps : kLargestAutomaticBatch;
  BestBatch best;
  Timed fastest;
  for (int64_t size = 1; size <= limit; size *= 2) {
    PLIMSOLL_ASSIGN(const Timed timed, time_of(request_of(size)));
    if (!timed.fits) break;
    if (!fastest.fits || timed.per_sample < fastest.per_sample) {
      best = {size, 0};
      fastest = timed;
      continue;
    }
    if (size == 2 * best.size) best.next_times = timed.per_sample / fastest.per_sample;
    if (timed.uses_levers) break;  // a larger batch would need more of them
  }
  return best;
}

}  // namespace plimsoll::engine
