// Window readers for the data of a calling program: arrays in memory, or batches from a source.
#pragma once

#include "api/batch.h"
#include "api/run.h"
#include "data/order.h"

namespace plimsoll::engine {

// Reads windows from arrays. If `shuffle` is set, each epoch has a new order.
class ArrayWindows final : public WindowReader {
 public:
  struct Settings {
    int64_t begin = 0, end = 0;  // the range of samples to read
    int64_t windows = 0;         // maximum per epoch; 0: all
    bool shuffle = true;
    uint64_t seed = 0;
  };
  // `reader` must have checked `batch`. Both must outlive this object.
  ArrayWindows(Run& run, const BatchReader& reader, const BoundBatch& batch, const Settings& settings);

  const RunCut& cut() const override { return cut_; }
  Status start(int64_t epochs, const CutPosition& from) override;
  Result<std::optional<int64_t>> next_window(int64_t epoch, int64_t window) override;
  Status read(const BatchRequest& request, const BatchBuffers& into) override;

 private:
  Run& run_;
  const BatchReader& reader_;
  const BoundBatch& batch_;
  Settings settings_;
  RunCut cut_;
  std::optional<SampleOrder> order_;
  int64_t ordered_epoch_ = -1;
};

// Makes one window per batch of a source, or one per accumulation_steps batches. A window of several batches is copied
// before it is used, because its number of samples must be known first.
class SourceWindows final : public WindowReader {
 public:
  SourceWindows(Run& run, const BatchReader& reader, DataSource& source);

  const RunCut& cut() const override { return cut_; }
  Status start(int64_t epochs, const CutPosition& from) override;
  Result<std::optional<int64_t>> next_window(int64_t epoch, int64_t window) override;
  Status read(const BatchRequest& request, const BatchBuffers& into) override;

 private:
  // Reads and checks the next batch of the source. Returns its number of samples, or 0 if the epoch is over.
  Result<int64_t> next_batch();
  Result<int64_t> next_batches();
  Status keep();  // copies the last batch that was read

  Run& run_;
  const BatchReader& reader_;
  DataSource& source_;
  int64_t steps_;  // batches per window
  RunCut cut_;
  int64_t epoch_ = -1;
  int64_t skip_ = 0;  // windows that an earlier run already trained on
  int64_t window_ = 0;
  Batch batch_;
  BoundBatch bound_;
  // A copy of one batch of a window, converted to the types of the slots.
  struct Kept {
    int64_t samples = 0;
    std::vector<std::vector<std::byte>> arrays;  // inputs, targets, weights
    BoundBatch bound;
  };
  std::vector<Kept> kept_;
};

}  // namespace plimsoll::engine
