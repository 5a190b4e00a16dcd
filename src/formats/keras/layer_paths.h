// Which HDF5 group holds the weights of which layer, as Keras 3's saving_lib walks a model.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace plimsoll::engine {

struct LayerPath {
  std::vector<std::string> layer_names;  // from the outermost model inwards: {"backbone", "conv1"}
  std::string group;                     // "layers/functional/layers/conv2d"; its weights are "<group>/vars/0", ...
  bool is_model = false;                 // a nested model: its layers follow
};

// For `config` of a whole .keras file (or of any serialised Sequential or Functional inside one, with the group it lies
// in as `prefix`): every layer, nested ones too, in Keras's order. Operations that are no layers (x + y) have no path.
// What a layer keeps in sublayers lies below its group: "layers/lstm/cell/vars/0",
// "layers/bidirectional/forward_layer/cell/...", "layers/time_distributed/layer/vars/0",
// "layers/multi_head_attention/query_dense/vars/0". P204 for a config that is no Sequential or Functional model.
Result<std::vector<LayerPath>> layer_paths(const nlohmann::json& config, const std::string& prefix = "");

// "BatchNormalization" -> "batch_normalization", "Conv2D" -> "conv2d", as keras.src.utils.naming does.
std::string keras_snake_case(std::string_view class_name);

}  // namespace plimsoll::engine
