// Layers and their calls before a model is made of them.
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
  nlohmann::json config;  // without a name; of a nested model the whole Keras object
  std::string name;       // "": chosen by the model
  std::string module = "keras.layers";
  size_t outputs = 1;
  int depth = 1;                                          // of layers that wrap others
  std::shared_ptr<const DescribedModel> model = nullptr;  // of a nested model

  bool is_input() const { return class_name == kInputLayer; }
};

// Output `index` of a call.
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
  ~CallNode();  // without recursion, however long the chain of calls is
};

std::string label_of(const DescribedLayer& layer);                           // before it has a name
std::string label_of(const DescribedLayer& layer, const std::string& name);  // "layer 'conv1' (Conv2D)"

// Names for layers that have none, as Keras chooses them: "conv2d", "conv2d_1". P201 if two have the same one.
Result<std::vector<std::string>> layer_names(const std::vector<const DescribedLayer*>& layers);

// The layer as an entry of a model's list of layers. P201 if a value in its configuration cannot be written.
Result<nlohmann::json> layer_json(const DescribedLayer& layer, const std::string& name);

// The model of these layers, checked by reading it; `config` is its Keras object.
Result<plimsoll::Description> finish_model(nlohmann::json config, const std::vector<const DescribedLayer*>& layers,
                                           const std::vector<std::string>& names);
// P204 or P205 if the architecture cannot be read.
Status check_architecture(const Description& description, bool compiled);

// Sets `trainable` of the layers of a model, nested ones included.
void set_all_trainable(nlohmann::json& model, bool trainable);

}  // namespace plimsoll::engine
