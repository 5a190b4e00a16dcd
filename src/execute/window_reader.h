// Where the windows of a training run come from. The loop (execute/fit.h) asks how large the next window is, cuts it
// into micro-batches, and has each of them read. How many windows an epoch has need not be known.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "execute/cutter.h"

namespace plimsoll::engine {

class WindowReader {
 public:
  virtual ~WindowReader() = default;

  // How the data are cut, as far as it is known. With unknown_cut() the epoch ends when next_window() says so.
  virtual const RunCut& cut() const = 0;
  // Starts to read at this position; the run ends after `epochs`.
  virtual Status start(int64_t epochs, const CutPosition& from) = 0;
  // The samples of window `window` of epoch `epoch`; none if the epoch is over. Windows are asked for in their order.
  virtual Result<std::optional<int64_t>> next_window(int64_t epoch, int64_t window) = 0;
  // Fills the buffers with the samples that `request` names, which lie in the window that was asked for last.
  virtual Status read(const BatchRequest& request, const BatchBuffers& into) = 0;
};

// The cut of data whose length is not known: every window may be a whole one, and there is always another.
RunCut unknown_cut(const BatchPlan& batch);
bool is_unknown(const RunCut& cut);

// Reads a source by position, ahead of the loop where the plan grants memory for that (`ahead` batches).
class PositionReader final : public WindowReader {
 public:
  // `windows` per epoch at most; 0: all of the data. The source outlives the reader.
  PositionReader(BatchSource& data, const BatchPlan& batch, int64_t windows, int ahead);
  ~PositionReader() override;

  const RunCut& cut() const override { return cut_; }
  Status start(int64_t epochs, const CutPosition& from) override;
  Result<std::optional<int64_t>> next_window(int64_t epoch, int64_t window) override;
  Status read(const BatchRequest& request, const BatchBuffers& into) override;

 private:
  class Staging;

  BatchSource& data_;
  RunCut cut_;
  int ahead_;
  std::optional<Cutter> reading_;  // of the thread that reads ahead: read() compares its cuts with the loop's
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<Prefetcher> prefetcher_;
};

}  // namespace plimsoll::engine
