// What a shaped model holds: the calls of its layers in program order, with the shape of every tensor.
#pragma once

#include <limits>
#include <vector>

#include "model/layer.h"
#include "model/objective.h"

namespace plimsoll::engine {

struct ShapedLayer {
  bool called = false;
  std::vector<WeightSpec> weights;  // once it was called
  size_t first_weight = 0;          // in the model's list
};

struct LayerCall {
  size_t layer = 0;
  std::vector<size_t> inputs, outputs;  // tensors
  LayerShape shape;                     // as computed for these inputs
};

inline constexpr size_t kNoMask = std::numeric_limits<size_t>::max();

struct LayerProgram {
  std::vector<ShapedLayer> layers;  // one per layer of the architecture, in its order
  std::vector<LayerCall> calls;
  std::vector<Shape> tensors;  // of one sample
  std::vector<size_t> masks;   // of each tensor: the tensor whose call made its mask, or kNoMask
  std::vector<size_t> inputs, outputs;
  Objective objective;  // with metrics resolved for these shapes
};

}  // namespace plimsoll::engine
