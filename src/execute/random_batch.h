// Batches of random data, for measurements. Zeros would run faster than real data.
#pragma once

#include "data/source.h"
#include "model/model.h"
#include "plan/plan.h"

namespace plimsoll::engine {

// One batch that can be read again and again: floats in [0, 1), labels below the number of classes, ids below the rows
// of every table that `phase` looks them up in. All sample weights are 1. `types` are the types that the phase reads.
class RandomBatch {
 public:
  RandomBatch(const Model& model, const DataTypes& types, const PhasePlan& phase, int64_t samples);
  // Reads the first `count` samples.
  void read(int64_t count, const BatchBuffers& into) const;

 private:
  struct Array {
    Bytes per_sample = 0;
    std::vector<std::byte> data;
  };
  std::vector<Array> inputs_, targets_;
};

}  // namespace plimsoll::engine
