// The walk over an architecture: Sequential and Functional models, nested in each other, become a tree of models whose
// calls stand in an order in which they can run. Layers are parsed, shapes not yet known.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/plan.h"

namespace plimsoll {

struct InputSpec {
  std::string name;
  bool known = false;                        // false: nothing says its shape
  std::vector<std::optional<int64_t>> dims;  // of one sample; nullopt where the model says None
  DType dtype = DType::kFloat32;
};

// One tensor inside a model: output `tensor` of call number `node` of child `child`.
struct TensorRef {
  size_t child = 0, node = 0, tensor = 0;
};

struct ModelTree {
  struct Child {
    enum class Kind { kInput, kLayer, kModel } kind = Kind::kLayer;
    std::string name;
    size_t index = 0;  // of InputSpec, layer object or model
  };
  struct Call {
    size_t child = 0;
    std::vector<TensorRef> inputs;
  };
  std::string name;
  bool sequential = false;
  bool trainable = true;
  std::vector<Child> children;
  std::vector<Call> calls;
  std::vector<TensorRef> inputs, outputs;
  std::vector<std::string> input_names, output_names;
  std::vector<InputSpec> specs;
};

struct Architecture {
  std::vector<ModelTree> models;  // the outermost is the last
  std::vector<LayerObject> layers;

  const ModelTree& top() const { return models.back(); }
};

// What is unsupported goes to `issues` and the walk goes on; a structure that cannot be walked is an error at once.
Result<Architecture> read_architecture(const Json& config, Issues& issues);

}  // namespace plimsoll
