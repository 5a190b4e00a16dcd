// What a `.keras` file, a model built in C++ and a live Keras model all become: the architecture and the compile
// configuration in Keras's own words. One path from here on.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace plimsoll::engine {

struct Description {
  nlohmann::json
      config;  // {"class_name": "Sequential"|"Functional", "config": {...}, ...}: `config.json` without compile_config
  nlohmann::json compile_config;  // null: never compiled
};

// As the only one of ModelOptions::metrics: no metrics.
inline constexpr const char* kNoMetrics = "none";

// What flags say over what the file says.
struct ModelOptions {
  std::optional<std::string> optimizer, loss;  // a Keras name ("adam"), or a JSON object {"class_name", "config"}
  std::vector<std::string> metrics;            // instead of the file's; {"none"}: no metrics at all
  std::optional<double> learning_rate;
  std::vector<int64_t> input_shape;  // for inputs declared with None; without the batch
  // The shape of one sample of the data for the input of that name (`only`: the model has no other input). Asked for
  // inputs declared with None where input_shape is not given; may be null.
  std::function<Result<std::vector<int64_t>>(const std::string& input, bool only)> data_shape;
  // A LossScaleOptimizer around an optimizer that is none; absent: where the file's layers are mixed_float16.
  std::optional<bool> scale_loss;
  std::vector<std::string> float32_layers;  // patterns of names: these stay in float32 under a mixed policy
  bool needs_training = true;  // false: evaluate needs a loss but no optimizer; predict neither (see needs_loss)
  bool needs_loss = true;
};

}  // namespace plimsoll::engine
