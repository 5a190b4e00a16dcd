// A Cutter decides which samples each call of accumulate gets. It cuts an epoch into windows, one per optimizer step,
// and a window into micro-batches. The prefetch thread and the training loop each have their own Cutter. Both produce
// the same sequence, and the loop checks that each batch it reads is the one it expects.
#pragma once

#include <algorithm>
#include <optional>

#include "data/prefetcher.h"
#include "plan/plan.h"

namespace plimsoll::engine {

// How a run cuts its data. The position in a checkpoint must be valid for this cut.
struct RunCut {
  int64_t samples = 0;
  int64_t windows = 0;  // per epoch
  BatchPlan batch;

  int64_t window_size(int64_t window) const { return std::min(batch.effective, samples - window * batch.effective); }
};

// The position of a cutter.
struct CutPosition {
  int64_t epoch = 0;
  int64_t window = 0;  // in the epoch
  int64_t done = 0;    // samples of the window that were already handed out
};

class Cutter {
 public:
  // `from` may be the position after the last window of its epoch, when only the epoch's validation remains.
  Cutter(const RunCut& cut, int64_t epochs, CutPosition from = {});
  // Returns a cutter for the micro-batches of one window of `size` samples, starting at `from`.
  static Cutter of_window(const BatchPlan& batch, const CutPosition& from, int64_t size) {
    return {{from.window * batch.effective + size, from.window + 1, batch}, from.epoch + 1, from};
  }
  // Returns a cutter for the micro-batches of a single batch.
  static Cutter of_batch(int64_t samples, int64_t micro) { return {{samples, 1, {samples, micro}}, 1}; }

  std::optional<BatchRequest> next();  // returns nothing after the last epoch

 private:
  RunCut cut_;
  int64_t epochs_;
  CutPosition at_;
};

}  // namespace plimsoll::engine
