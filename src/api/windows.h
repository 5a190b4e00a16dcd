// The windows of a program's own data: arrays in memory, or batches that a source yields.
#pragma once

#include "api/batch.h"
#include "api/run.h"
#include "data/order.h"

namespace plimsoll::engine {

// The samples of arrays, in a new order in each epoch where they are shuffled.
class ArrayWindows final : public WindowReader {
 public:
  struct Settings {
    int64_t begin = 0, end = 0;  // the samples that are read
    int64_t windows = 0;         // per epoch at most; 0: all
    bool shuffle = true;
    uint64_t seed = 0;
  };
  // `batch` was checked by `reader`; both outlive this.
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

// One window per batch of a source, or per accumulation_steps batches. A window of several batches is copied before it
// is used, because its number of samples must be known first.
class SourceWindows final : public WindowReader {
 public:
  SourceWindows(Run& run, const BatchReader& reader, DataSource& source);

  const RunCut& cut() const override { return cut_; }
  Status start(int64_t epochs, const CutPosition& from) override;
  Result<std::optional<int64_t>> next_window(int64_t epoch, int64_t window) override;
  Status read(const BatchRequest& request, const BatchBuffers& into) override;

 private:
  // The next batch of the source, checked; its samples, or 0 where the epoch is over.
  Result<int64_t> next_batch();
  Result<int64_t> next_batches();
  Status keep();  // copies the batch that was read last

  Run& run_;
  const BatchReader& reader_;
  DataSource& source_;
  int64_t steps_;  // batches per window
  RunCut cut_;
  int64_t epoch_ = -1;
  int64_t skip_ = 0;  // windows that a run before has trained on
  int64_t window_ = 0;
  Batch batch_;
  BoundBatch bound_;
  // Copies of the batches of a window, in the types of the slots.
  struct Kept {
    int64_t samples = 0;
    std::vector<std::vector<std::byte>> arrays;  // inputs, targets, weights
    BoundBatch bound;
  };
  std::vector<Kept> kept_;
};

}  // namespace plimsoll::engine
