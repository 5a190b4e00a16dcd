// Keras's class_weight: one weight per class, which all samples of that class get.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "base/tensor.h"

namespace plimsoll::engine {

class ClassWeights {
 public:
  ClassWeights() = default;

  // Parses "0:1,1:5". Fails with P201 for any other text, a class named twice, or a weight that is negative or not
  // finite.
  static Result<ClassWeights> parse(std::string_view text);

  bool empty() const { return weights_.empty(); }
  float of(int64_t label) const;  // 1 for a class that is not named

  // Multiplies each of `count` sample weights by the weight of its target's class. As in Keras, the class is the index
  // of the largest of several numbers (the first one of ties), or a single number rounded half to even. `elements` is
  // the number of elements per target.
  void apply(DType dtype, const void* targets, int64_t elements, int64_t count, float* weights) const;

 private:
  std::vector<std::pair<int64_t, float>> weights_;  // sorted by class
};

}  // namespace plimsoll::engine
