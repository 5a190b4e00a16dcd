// What a `.keras` file, a model built in C++ and a live Keras model all become: the architecture and the compile
// configuration in Keras's own words. One path from here on.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace plimsoll {

struct Description {
  nlohmann::json
      config;  // {"class_name": "Sequential"|"Functional", "config": {...}, ...}: `config.json` without compile_config
  nlohmann::json compile_config;  // null: never compiled
};

// What flags say over what the file says.
struct ModelOptions {
  std::optional<std::string> optimizer, loss;  // a Keras name ("adam"), or a JSON object {"class_name", "config"}
  std::vector<std::string> metrics;
  std::optional<double> learning_rate;
  std::vector<int64_t> input_shape;  // for inputs declared with None; without the batch
  // A LossScaleOptimizer around an optimizer that is none; absent: where the file's layers are mixed_float16.
  std::optional<bool> scale_loss;
  std::vector<std::string> float32_layers;  // patterns of names: these stay in float32 under a mixed policy
  bool needs_training = true;  // false: evaluate needs a loss but no optimizer; predict neither (see needs_loss)
  bool needs_loss = true;
};

}  // namespace plimsoll
