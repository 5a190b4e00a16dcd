// A WindowReader provides the windows of a training run. The loop (execute/fit.h) asks for the size of the next window,
// cuts it into micro-batches, and calls read() for each of them. The number of windows per epoch may be unknown.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "execute/cutter.h"

namespace plimsoll::engine {

class WindowReader {
 public:
  virtual ~WindowReader() = default;

  // Returns how the data are cut. If this is unknown_cut(), the epoch ends when next_window() returns nothing.
  virtual const RunCut& cut() const = 0;
  // Returns whether next_window() switches the session to the plan of the window. Then a run ends between windows only.
  virtual bool switches_plans() const { return false; }
  // Starts reading at position `from`. The run ends after `epochs` epochs.
  virtual Status start(int64_t epochs, const CutPosition& from) = 0;
  // Returns the number of samples in window `window` of epoch `epoch`, or nothing if the epoch is over. The caller must
  // ask for windows in order.
  virtual Result<std::optional<int64_t>> next_window(int64_t epoch, int64_t window) = 0;
  // Fills the buffers with the samples that `request` names. They must be in the window that next_window() returned
  // last.
  virtual Status read(const BatchRequest& request, const BatchBuffers& into) = 0;
  // Who waited for whom since start(). Allocates nothing.
  virtual DataTimes times() const { return {}; }
};

// Returns the cut for data of unknown length: every window may be full, and the number of windows has no limit.
RunCut unknown_cut(const BatchPlan& batch);
bool is_unknown(const RunCut& cut);

// Reads a source by position. If the plan grants memory for `ahead` batches, a thread prefetches that many.
class PositionReader final : public WindowReader {
 public:
  // `windows`: the maximum per epoch; 0: all of the data. The source must outlive the reader.
  PositionReader(BatchSource& data, const BatchPlan& batch, int64_t windows, int ahead);
  ~PositionReader() override;

  const RunCut& cut() const override { return cut_; }
  Status start(int64_t epochs, const CutPosition& from) override;
  Result<std::optional<int64_t>> next_window(int64_t epoch, int64_t window) override;
  Status read(const BatchRequest& request, const BatchBuffers& into) override;

  DataTimes times() const override;

 private:
  class Staging;

  BatchSource& data_;
  RunCut cut_;
  int ahead_;
  std::optional<Cutter> reading_;  // used by the prefetch thread; read() checks its cuts against the loop's
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<Prefetcher> prefetcher_;
};

}  // namespace plimsoll::engine
