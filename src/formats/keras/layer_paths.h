// Maps each layer to the HDF5 group that holds its weights, in the order in which Keras 3's saving_lib walks a model.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace plimsoll::engine {

struct LayerPath {
  std::vector<std::string> layer_names;  // from the outermost model to the layer: {"backbone", "conv1"}
  std::string group;                     // "layers/functional/layers/conv2d"; its weights are "<group>/vars/0", ...
  bool is_model = false;                 // a nested model; its layers follow
};

// Returns every layer, including nested ones, in Keras's order. `config` is that of a whole .keras file, or of a
// serialised Sequential or Functional model inside one; `prefix` is then the group of that model. Operations that are
// not layers (x + y) have no path. Weights of sublayers lie below the layer's group: "layers/lstm/cell/vars/0",
// "layers/bidirectional/forward_layer/cell/...", "layers/time_distributed/layer/vars/0",
// "layers/multi_head_attention/query_dense/vars/0". Fails with P204 if `config` is not a Sequential or Functional
// model.
Result<std::vector<LayerPath>> layer_paths(const nlohmann::json& config, const std::string& prefix = "");

// Converts "BatchNormalization" to "batch_normalization" and "Conv2D" to "conv2d", like keras.src.utils.naming.
std::string keras_snake_case(std::string_view class_name);

}  // namespace plimsoll::engine
