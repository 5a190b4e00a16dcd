// Layers and their calls before a model is built from them.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "api/config_json.h"
#include "api/described.h"

namespace plimsoll::engine {

inline constexpr const char* kInputLayer = "InputLayer";

struct DescribedLayer {
  std::string class_name;
  nlohmann::json config;  // without a name; for a nested model, the whole Keras object
  std::string name;       // "": the model chooses a name
  std::string module = "keras.layers";
  size_t outputs = 1;
  int depth = 1;                                          // nesting depth of layers that wrap other layers
  std::shared_ptr<const DescribedModel> model = nullptr;  // set for a nested model
  bool takes_tensors_apart = false;  // each tensor of a call is an argument of its own, not an element of a list
  nlohmann::json call_arguments = nlohmann::json::object();  // further arguments of every call

  bool is_input() const { return class_name == kInputLayer; }
};

// Output `index` of the call `node`.
struct NodeOutput {
  std::shared_ptr<CallNode> node;
  size_t index = 0;
};

struct CallNode {
  std::shared_ptr<const DescribedLayer> layer;
  std::vector<NodeOutput> inputs;

  CallNode(std::shared_ptr<const DescribedLayer> called, std::vector<NodeOutput> on)
      : layer(std::move(called)), inputs(std::move(on)) {}
  CallNode(const CallNode&) = delete;
  CallNode& operator=(const CallNode&) = delete;
  ~CallNode();  // not recursive, so a long chain of calls cannot overflow the stack
};

std::string label_of(const DescribedLayer& layer);                           // for a layer that may not have a name yet
std::string label_of(const DescribedLayer& layer, const std::string& name);  // "layer 'conv1' (Conv2D)"

// Returns the names of the layers. A layer without a name gets the one that Keras would choose: "conv2d", "conv2d_1".
// Fails with P201 if two layers have the same name.
Result<std::vector<std::string>> layer_names(const std::vector<const DescribedLayer*>& layers);

// Returns the layer as an entry of a model's list of layers. Fails with P201 if its configuration cannot be written as
// JSON text.
Result<nlohmann::json> layer_json(const DescribedLayer& layer, const std::string& name);

// Builds a model from these layers and checks it by reading it back. `config` is its Keras object.
Result<plimsoll::Description> finish_model(nlohmann::json config, const std::vector<const DescribedLayer*>& layers,
                                           const std::vector<std::string>& names);
// Fails with P204 or P205 if the architecture cannot be read.
Status check_architecture(const Description& description, bool compiled);

// Sets `trainable` on all layers of a model, including nested layers.
void set_all_trainable(nlohmann::json& model, bool trainable);

}  // namespace plimsoll::engine
