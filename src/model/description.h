// The common form of a `.keras` file, a model built in C++ and a live Keras model: the architecture and the compile
// configuration in Keras's format. All later stages read only this.
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

// If this is the only entry of ModelOptions::metrics, there are no metrics.
inline constexpr const char* kNoMetrics = "none";

// Options that override the file.
struct ModelOptions {
  std::optional<std::string> optimizer, loss;  // a Keras name ("adam"), or a JSON object {"class_name", "config"}
  std::vector<std::string> metrics;            // replace the file's metrics; {"none"}: no metrics
  std::optional<double> learning_rate;
  std::vector<int64_t> input_shape;  // for inputs declared with None; without the batch
  // Returns the shape of one sample of the data for this input (`only`: the model has no other input).
  // Called for inputs declared with None if input_shape is not given. May be null.
  std::function<Result<std::vector<int64_t>>(const struct InputSpec& input, bool only)> data_shape;
  // Whether to wrap the optimizer in a LossScaleOptimizer, if it is not one already. Unset: only if the file's layers
  // are mixed_float16.
  std::optional<bool> scale_loss;
  std::vector<std::string> float32_layers;  // patterns of layer names; these layers stay float32 under a mixed policy
  bool needs_training = true;  // false: evaluate needs a loss but no optimizer; predict neither (see needs_loss)
  bool needs_loss = true;
};

}  // namespace plimsoll::engine
