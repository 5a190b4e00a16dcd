// A caller's batch, checked against the model and copied into the session's slots.
#pragma once

#include "data/source.h"
#include "model/model.h"
#include "plimsoll/plimsoll.h"

namespace plimsoll::engine {

// Reads batches for a model with one input and one output.
class BatchReader {
 public:
  // `types`: what the plan's slots hold.
  BatchReader(const Model& model, const DataTypes& types) : model_(model), types_(types) {}

  // P402 for the number of samples, of elements, or another dtype; P403 and P404 for the elements. `most` is
  // TrainerOptions::batch_size.
  Status check(const Batch& batch, int64_t most) const;
  // Samples first .. first+count-1 of a batch that was checked.
  void copy(const Batch& batch, int64_t first, int64_t count, const BatchBuffers& into) const;

 private:
  const Port& input() const { return model_.inputs()[0]; }
  const Port& output() const { return model_.outputs()[0]; }
  Status check_input(const Batch& batch) const;
  Status check_targets(const Batch& batch) const;

  const Model& model_;
  const DataTypes& types_;
};

}  // namespace plimsoll::engine
