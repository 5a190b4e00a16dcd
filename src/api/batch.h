// A caller's batch: its arrays are found by name or place, checked against the model, and copied into the session's
// slots with their elements converted.
#pragma once

#include "data/source.h"
#include "model/model.h"
#include "plimsoll/data.h"

namespace plimsoll::engine {

// An array that was checked; without data: every sample weight is 1.
struct BoundArray {
  const std::byte* data = nullptr;
  DType dtype = DType::kFloat32;
};

// A batch that was checked: one array per input, and per output with a loss.
struct BoundBatch {
  int64_t samples = 0;
  std::vector<BoundArray> inputs, targets, weights;
};

class BatchReader {
 public:
  // `types`: what the plan's slots hold. Both outlive the reader.
  BatchReader(const Model& model, const DataTypes& types) : model_(model), types_(types) {}

  // Checks a batch of 1 to `most` samples (0: any number). Without `targets` only its inputs are read. P402 for arrays
  // that are missing or have another shape or dtype, P403 and P404 for their elements.
  Result<BoundBatch> bind(const Batch& batch, int64_t most, bool targets) const;
  // Copies samples first .. first+count-1 of the batch into the buffers, from sample `at` of the buffers on.
  void copy(const BoundBatch& batch, int64_t first, int64_t count, int64_t at, const BatchBuffers& into) const;

 private:
  Status bind_inputs(const Batch& batch, BoundBatch& bound) const;
  Status bind_targets(const Batch& batch, BoundBatch& bound) const;
  Status bind_weights(const Batch& batch, BoundBatch& bound) const;

  const Model& model_;
  const DataTypes& types_;
};

// Converts `count` elements; whole numbers that the destination cannot hold must have been refused before.
void convert_elements(DType from, const void* source, DType to, void* destination, int64_t count);

// The array of a view. P402 for a dtype that does not exist, or a shape that does not have the view's elements.
Result<DType> check_view(const ArrayView& view, const std::string& label);
// "(28, 28, 1)", as Keras writes it.
std::string shape_text(const std::vector<int64_t>& dims);

}  // namespace plimsoll::engine
