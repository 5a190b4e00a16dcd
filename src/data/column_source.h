// Samples of a DataSet, in the order of the arrays or in an order of each epoch's own. Reads go straight into the
// caller's buffers, never more than was asked for, and allocate nothing; several threads may read at once.
#pragma once

#include <optional>
#include <vector>

#include "data/class_weights.h"
#include "data/dataset.h"
#include "data/order.h"
#include "data/source.h"

namespace plimsoll::engine {

struct SourceOptions {
  int64_t begin = 0, end = -1;  // which samples of the arrays; -1: to the last
  bool shuffle = false;
  uint64_t seed = 0;
  ClassWeights class_weights;  // for training alone: Keras gives them to no validation data
};

class ColumnSource : public BatchSource {
 public:
  // P201 for class weights Keras has no meaning for: several outputs, or targets with more than one axis.
  static Result<ColumnSource> create(DataSet data, SourceOptions options);

  const DataSet& data() const { return data_; }  // all of the arrays, also where only a part is read

  int64_t samples() const override { return options_.end - options_.begin; }
  const std::vector<TensorType>& input_types() const override { return input_types_; }
  const std::vector<TensorType>& target_types() const override { return target_types_; }
  bool has_weights() const override { return !data_.weights.empty() || !options_.class_weights.empty(); }
  Bytes buffer_bytes() const override { return 0; }

  // Targets and weights are left out where `into` has no buffers for them; weights need the targets when there are
  // class weights. P403 for elements that are not finite, P404 for labels that name no class, P202 for what cannot be
  // read, P101 for samples that are not there.
  Status read(int64_t epoch, int64_t first, int64_t count, const BatchBuffers& into) override;

 private:
  ColumnSource(DataSet data, SourceOptions options);

  bool suits(const BatchBuffers& into) const;
  // The sample of the arrays that stands at `position` of an epoch; `order` is null without shuffling.
  int64_t sample_at(const SampleOrder* order, int64_t position) const;
  Status read_columns(const SampleOrder* order, int64_t first, int64_t count, const BatchBuffers& into) const;
  Status read_run(int64_t sample, int64_t count, int64_t at, const BatchBuffers& into) const;
  Status check(const Column& column, const void* data, const SampleOrder* order, int64_t first, int64_t count) const;
  Status check_columns(const SampleOrder* order, int64_t first, int64_t count, const BatchBuffers& into) const;

  DataSet data_;
  SourceOptions options_;
  std::vector<TensorType> input_types_, target_types_;
};

}  // namespace plimsoll::engine
