// Keras's class_weight: a weight for each class, which becomes the weight of the samples of that class.
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

  // "0:1,1:5"; P201 for anything else, a class named twice, or a weight that is negative or not finite.
  static Result<ClassWeights> parse(std::string_view text);

  bool empty() const { return weights_.empty(); }
  float of(int64_t label) const;  // 1 for a class that is not named

  // Multiplies each of `count` weights by that of its target's class, as Keras names it: the largest of several numbers
  // (the first of ties), or the single one rounded, half to even. `elements` is how many numbers a target has.
  void apply(DType dtype, const void* targets, int64_t elements, int64_t count, float* weights) const;

 private:
  std::vector<std::pair<int64_t, float>> weights_;  // sorted by class
};

}  // namespace plimsoll::engine
