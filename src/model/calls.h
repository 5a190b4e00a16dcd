// The contents of a shaped model: the calls of its layers in program order, and the shape of every tensor.
#pragma once

#include <limits>
#include <vector>

#include "model/layer.h"
#include "model/objective.h"

namespace plimsoll::engine {

struct ShapedLayer {
  bool called = false;
  std::vector<WeightSpec> weights;  // known after the first call
  size_t first_weight = 0;          // index in the model's list of weights
};

struct LayerCall {
  size_t layer = 0;
  size_t node = 0;                      // number of the layer's call in the file
  std::vector<size_t> inputs, outputs;  // indices of tensors
  LayerShape shape;                     // computed for these inputs
};

inline constexpr size_t kNoMask = std::numeric_limits<size_t>::max();

struct LayerProgram {
  std::vector<ShapedLayer> layers;  // one per layer of the architecture, in its order
  std::vector<LayerCall> calls;
  std::vector<Shape> tensors;  // shapes of one sample
  std::vector<TensorKind> kinds;
  std::vector<size_t> masks;   // per tensor: the tensor whose call made its mask, or kNoMask
  std::vector<size_t> inputs, outputs;
  Objective objective;  // with metrics resolved for these shapes
};

}  // namespace plimsoll::engine
