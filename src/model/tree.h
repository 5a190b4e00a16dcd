// Reads the structure of a model file. Nested Sequential and Functional models become a tree of models whose calls are
// in an executable order. Layers are parsed, but shapes are not known yet.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/architecture.h"
#include "model/layer.h"
#include "model/objective.h"

namespace plimsoll::engine {

// A layer as described by the file, independent of its calls.
struct LayerObject {
  std::vector<std::string> names;  // from the outermost model to the layer
  std::string path;                // the same, joined by '/'
  std::string class_name;
  bool operation = false;  // a function of keras.ops; computes in the dtype of its inputs
  std::string group;       // group in model.weights.h5: "layers/conv2d_1"
  bool trainable = true;
  Precision policy;      // the policy in the file
  bool float32 = false;  // computes in the dtype of its variables, whatever the run's precision
  Layer layer;
  std::vector<Layer> by_call;  // one per call if the class reads the arguments of its calls, else empty

  // The layer as call number `node` runs it.
  const Layer& at(size_t node) const { return node < by_call.size() ? by_call[node] : layer; }
};

// One tensor inside a model: output `tensor` of call number `node` of child `child`.
struct TensorRef {
  size_t child = 0, node = 0, tensor = 0;
};

struct ModelTree {
  struct Child {
    enum class Kind { kInput, kLayer, kModel } kind = Kind::kLayer;
    std::string name;
    size_t index = 0;  // index of an InputSpec, layer object or model
  };
  struct Call {
    size_t child = 0;
    std::vector<TensorRef> inputs;
    std::vector<std::optional<TensorRef>> masks;  // given as the argument `mask`
    size_t rank = 0;                              // position in the order in which Keras runs the calls
  };
  std::string name;
  bool sequential = false;
  bool trainable = true;
  std::vector<Child> children;
  std::map<std::string, size_t> child_by_name;
  std::vector<Call> calls;
  std::vector<TensorRef> inputs, outputs;
  std::vector<std::string> input_names, output_names;
  std::vector<InputSpec> specs;
};

struct LayerTree {
  std::vector<ModelTree> models;    // the outermost model is the last
  std::vector<LayerObject> layers;  // in Keras's order of the weights

  const ModelTree& top() const { return models.back(); }
};

// The parts that the copies of an Architecture share.
struct ArchitectureParts {
  LayerTree tree;
  Objective objective;  // "accuracy" is resolved once shapes are known
  bool needs_loss = false;
};

// Sets the rank of each call of a Functional model, as keras/src/ops/function.py orders them.
void rank_calls(ModelTree& tree);

bool is_model_class(std::string_view class_name);

// Unsupported features are listed in `issues`, and reading continues. A structure that cannot be read fails at once.
Result<LayerTree> read_tree(const Json& config, Issues& issues);

}  // namespace plimsoll::engine
