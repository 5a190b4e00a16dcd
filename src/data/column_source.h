// The samples of a DataSet, in the order of the arrays or shuffled for each epoch. Reads go directly into the caller's
// buffers and read only the requested samples. Reads of arrays allocate nothing. Several threads may read at once.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <vector>

#include "data/class_weights.h"
#include "data/dataset.h"
#include "data/disk_shuffle.h"
#include "data/order.h"
#include "data/reader_team.h"
#include "data/source.h"

namespace plimsoll::engine {

// Calls use(source) once for each source of rows of these data.
void for_each_row_source(std::initializer_list<const DataSet*> sets, const std::function<void(const RowSource&)>& use);
// Chooses how a shuffled epoch of these data is read. Decoded rows and data in memory are read by index.
ShufflePlan plan_shuffle(const ShuffleOptions& options, const DataSet& data, int64_t samples);
// Memory that the row sources of these data hold; a source of several columns counts once. Includes
// the stacks of threads that read side by side.
Bytes row_source_bytes(std::initializer_list<const DataSet*> sets);

struct SourceOptions {
  int64_t begin = 0, end = -1;  // range of samples; end -1: to the last sample
  bool shuffle = false;
  uint64_t seed = 0;
  ClassWeights class_weights = {};                    // only for training: Keras does not apply them to validation data
  std::optional<ShufflePlan> plan = {};               // how a shuffled epoch is read; absent: by index
  std::function<void(const std::string&)> note = {};  // receives notes for the user; may be empty
};

class ColumnSource : public BatchSource {
 public:
  // Fails with P201 for class weights that Keras does not define: several outputs, or targets with more than one axis.
  static Result<ColumnSource> create(DataSet data, SourceOptions options);

  const DataSet& data() const { return data_; }  // the whole arrays, even if only a part is read

  int64_t begin() const { return options_.begin; }  // the first sample in the arrays
  int64_t samples() const override { return options_.end - options_.begin; }
  const std::vector<TensorType>& input_types() const override { return input_types_; }
  const std::vector<TensorType>& target_types() const override { return target_types_; }
  bool has_weights() const override { return !data_.weights.empty() || !options_.class_weights.empty(); }
  Bytes buffer_bytes() const override {
    return row_source_bytes({&data_}) + (options_.plan ? options_.plan->memory_bytes() : 0);
  }
  RowTimes row_times() const override;
  int readers() const override { return readers_; }

  // If `into` has no buffers for targets or weights, they are not read. With class weights, reading weights needs the
  // targets too. Fails with P403 if an element is not finite, P404 if a label is outside the classes, P202 if the file
  // cannot be read, P101 if the samples do not exist.
  Status read(int64_t epoch, int64_t first, int64_t count, const BatchBuffers& into) override;

 private:
  ColumnSource(DataSet data, SourceOptions options);

  bool suits(const BatchBuffers& into) const;
  // Returns the sample at `position` of an epoch. `order` is null without shuffling.
  int64_t sample_at(const SampleOrder* order, int64_t position) const;
  Status read_columns(const SampleOrder* order, int64_t first, int64_t count, const BatchBuffers& into);
  Status read_by_disk(const SampleOrder& order, int64_t epoch, int64_t first, int64_t count, const BatchBuffers& into);
  Status read_records(int64_t sample, int64_t count, int64_t at, const BatchBuffers& into) const;
  Status read_run(int64_t sample, int64_t count, int64_t at, const BatchBuffers& into) const;
  Status check(const Column& column, const void* data, const SampleOrder* order, int64_t first, int64_t count) const;
  Status check_columns(const SampleOrder* order, int64_t first, int64_t count, const BatchBuffers& into) const;

  DataSet data_;
  SourceOptions options_;
  std::vector<TensorType> input_types_, target_types_;
  int readers_ = 1;  // threads that read records side by side
  std::unique_ptr<DiskShuffle> disk_;
  std::unique_ptr<ReaderTeam> team_;  // with the first batch, if there are several
};

}  // namespace plimsoll::engine
