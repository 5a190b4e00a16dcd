#include "search/batch.h"

#include "search/build.h"

namespace plimsoll {
namespace {

Result<bool> runs_whole(const SearchRequest& request) {
  // A batch too large to count bytes for is too large for any budget.
  if (!request.model->check_batch(request.batch)) return false;
  PLIMSOLL_ASSIGN(const Plan plan, build_plan(request, request.piece(), 0));
  const bool waits = plan.prefetch == 0 && request.data.reads_ahead && request.forbidden.count("prefetch") == 0;
  return !waits && (request.budget == 0 || plan.peak_bytes() <= request.budget);
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

}  // namespace plimsoll
