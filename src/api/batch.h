// Reads a caller's batch. Arrays are matched to the model's inputs and outputs by name or position and checked. Their
// elements are converted and copied into the session's slots.
#pragma once

#include "data/source.h"
#include "model/model.h"
#include "plimsoll/data.h"

namespace plimsoll::engine {

// A checked array. If `data` is null, every sample weight is 1.
struct BoundArray {
  const std::byte* data = nullptr;
  DType dtype = DType::kFloat32;
  int64_t stored = 0;  // elements of a sample if the array has fewer than the model takes; 0 fills the rest
};

// A checked batch: one array per input and one per output with a loss.
struct BoundBatch {
  int64_t samples = 0;
  std::vector<BoundArray> inputs, targets, weights;
};

class BatchReader {
 public:
  // `types`: the element types of the plan's slots. Both arguments must outlive the reader.
  BatchReader(const Model& model, const DataTypes& types) : model_(model), types_(types) {}

  // Checks a batch of 1 to `most` samples (0: no maximum). If `targets` is false, only the inputs are read. Fails with
  // P402 if an array is missing or has the wrong shape or dtype, with P403 if an element is not finite, and with P404
  // if a label is out of range.
  Result<BoundBatch> bind(const Batch& batch, int64_t most, bool targets) const;
  // Copies samples first .. first+count-1 of the batch into the buffers, starting at sample `at` of the buffers.
  void copy(const BoundBatch& batch, int64_t first, int64_t count, int64_t at, const BatchBuffers& into) const;

 private:
  Status bind_inputs(const Batch& batch, BoundBatch& bound) const;
  Status bind_targets(const Batch& batch, BoundBatch& bound) const;
  Status bind_weights(const Batch& batch, BoundBatch& bound) const;

  const Model& model_;
  const DataTypes& types_;
};

// Converts `count` elements. The caller must already have refused integers that the destination type cannot hold.
void convert_elements(DType from, const void* source, DType to, void* destination, int64_t count);

// Returns the dtype of a view. Fails with P402 if the dtype does not exist or the shape does not match the number of
// elements.
Result<DType> check_view(const ArrayView& view, const std::string& label);
// Formats a shape as Keras does: "(28, 28, 1)".
std::string shape_text(const std::vector<int64_t>& dims);

}  // namespace plimsoll::engine
