// Which samples each call of accumulate gets: an epoch is cut into windows, one per optimizer step, and a window into
// micro-batches. The thread that reads ahead and the loop that trains each ask a Cutter of their own; both hand out the
// same, and what was read is compared with what was asked for.
#pragma once

#include <algorithm>
#include <optional>

#include "data/prefetcher.h"
#include "plan/plan.h"

namespace plimsoll::engine {

// How a run cuts its data: what the numbers of a checkpoint must fit.
struct RunCut {
  int64_t samples = 0;
  int64_t windows = 0;  // of an epoch
  BatchPlan batch;

  int64_t window_size(int64_t window) const { return std::min(batch.effective, samples - window * batch.effective); }
};

// Where a cutter stands.
struct CutPosition {
  int64_t epoch = 0;
  int64_t window = 0;  // of the epoch
  int64_t done = 0;    // samples of the window that were handed out
};

class Cutter {
 public:
  // `from` may stand behind the last window of its epoch, where only the epoch's validation is left.
  Cutter(const RunCut& cut, int64_t epochs, CutPosition from = {});
  // The micro-batches of one window of `size` samples, from the position `from` on.
  static Cutter of_window(const BatchPlan& batch, const CutPosition& from, int64_t size) {
    return {{from.window * batch.effective + size, from.window + 1, batch}, from.epoch + 1, from};
  }
  // The micro-batches of one batch alone.
  static Cutter of_batch(int64_t samples, int64_t micro) { return {{samples, 1, {samples, micro}}, 1}; }

  std::optional<BatchRequest> next();  // none after the last epoch

 private:
  RunCut cut_;
  int64_t epochs_;
  CutPosition at_;
};

}  // namespace plimsoll::engine
