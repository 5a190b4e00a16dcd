#include "search/auto_batch.h"

#include "search/compile.h"
#include "search/micro_batch.h"
#include "search/prefetch.h"

namespace plimsoll::engine {
namespace {

Result<bool> runs_whole(const SearchRequest& request) {
  // If the bytes of a batch overflow, the batch is too large for any budget.
  if (!request.model->check_batch(request.batch)) return false;
  PLIMSOLL_ASSIGN(const auto plan, compile(request, cut_into(request, request.piece())));
  const bool waits = plan->settings.of(kPrefetch) == 0 && request.data.reads_ahead && !request.forbids(kPrefetch);
  return !waits && (request.budget == 0 || plan->peak_bytes() <= request.budget);
}

}  // namespace

Result<int64_t> largest_batch(const std::function<SearchRequest(int64_t)>& request_of, int64_t samples) {
  const int64_t steps = request_of(1).accumulation_steps;
  const int64_t limit = samples > 0 ? samples / steps : kLargestAutomaticBatch;
  int64_t batch = 1;
  while (2 * batch <= limit) {
    PLIMSOLL_ASSIGN(const bool fits, runs_whole(request_of(2 * batch)));
    if (!fits) break;
    batch *= 2;
  }
  return batch;
}

}  // namespace plimsoll::engine
