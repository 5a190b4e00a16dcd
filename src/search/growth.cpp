#include "search/growth.h"

#include <algorithm>

#include "search/compile.h"

namespace plimsoll::engine {
namespace {

// Compiling without levers always returns a plan, because no lever can miss its setting.
Result<Plan> without_levers(const SearchRequest& request) {
  PLIMSOLL_ASSIGN(std::optional<Plan> plan, compile(request, {}));
  return std::move(plan.value());
}

}  // namespace

Status fill_growth(const SearchRequest& request, SearchResult& result) {
  const Candidate& first = result.candidates.front();
  result.unlevered_arena_bytes = first.arena_bytes;
  result.unlevered_seconds = first.seconds;
  if (request.batch == 0) {
    result.fixed_bytes = result.unlevered_arena_bytes;
    return {};
  }
  // Compile plans for two whole batches without levers; the arena is nearly linear in the batch between them.
  SearchRequest plain = request;
  plain.evaluate_batch = plain.predict_batch = plain.partial_window = 0;
  plain.micro_batch.reset();
  Bytes whole = first.arena_bytes;
  const bool cut = first.settings.of(kMicroBatch) != 0;
  if (cut || request.evaluate_batch > 0 || request.predict_batch > 0 || request.partial_window > 0) {
    PLIMSOLL_ASSIGN(const Plan plan, without_levers(plain));
    whole = plan.arena_bytes;
    if (cut) result.unlevered_arena_bytes = plan.arena_bytes, result.unlevered_seconds = plan.compute_seconds;
  }
  const int64_t other = request.batch > 1 ? request.batch / 2 : 2;
  plain.batch = other;
  PLIMSOLL_ASSIGN(const Plan plan, without_levers(plain));
  result.bytes_per_sample = (whole - plan.arena_bytes) / (request.batch - other);
  result.fixed_bytes = std::max<Bytes>(0, whole - result.bytes_per_sample * request.batch);
  return {};
}

}  // namespace plimsoll::engine
