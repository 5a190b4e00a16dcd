// What a checked model holds: layer objects, which own weights, and the calls of them in program order.
#pragma once

#include <string>
#include <vector>

#include "model/layer.h"
#include "model/objective.h"

namespace plimsoll {

struct LayerObject {
  std::vector<std::string> names;  // from the outermost model inwards
  std::string path;                // the same, joined by '/'
  std::string class_name;
  bool trainable = true;
  bool called = false;
  Precision policy;      // as the file has it
  bool float32 = false;  // computes in the dtype of its variables, whatever the run's precision
  Layer layer;
  std::vector<WeightSpec> specs;  // once it was called
  size_t first_weight = 0;        // in the model's list
};

struct LayerCall {
  size_t layer = 0;
  std::vector<size_t> inputs;  // tensors
  size_t output = 0;
};

struct ModelPlan {
  std::vector<LayerObject> layers;  // in Keras's order of the weights
  std::vector<LayerCall> calls;
  std::vector<Shape> tensors;  // of one sample
  std::vector<size_t> inputs, outputs;
  Objective objective;
};

}  // namespace plimsoll
