// The recurrent layers of the C++ interface.
#include "plimsoll/recurrent_layers.h"

#include "api/layer_graph.h"
#include "base/json.h"
#include "formats/keras/layer_paths.h"

namespace plimsoll::layers {
namespace {

using engine::Access;
using engine::json_object;
using nlohmann::json;

json value(const ConfigValue& value) {
  return Access::json(value);
}

// Makes the layer from what its class alone has and the arguments that all recurrent layers have.
template <typename Options>
Layer recurrent(const char* class_name, int64_t units, const Options& options, size_t states, json config) {
  const json shared = json_object({{"units", units},
                                   {"activation", options.activation},
                                   {"use_bias", options.use_bias},
                                   {"kernel_initializer", value(options.kernel_initializer)},
                                   {"recurrent_initializer", value(options.recurrent_initializer)},
                                   {"bias_initializer", value(options.bias_initializer)},
                                   {"kernel_regularizer", value(options.kernel_regularizer)},
                                   {"recurrent_regularizer", value(options.recurrent_regularizer)},
                                   {"bias_regularizer", value(options.bias_regularizer)},
                                   {"dropout", options.dropout},
                                   {"recurrent_dropout", options.recurrent_dropout},
                                   {"return_sequences", options.return_sequences},
                                   {"return_state", options.return_state},
                                   {"go_backwards", options.go_backwards},
                                   {"stateful", false},
                                   {"unroll", false},
                                   {"zero_output_for_mask", false},
                                   {"trainable", options.trainable},
                                   {"dtype", engine::policy_json(options.dtype)}});
  config.update(shared);
  engine::DescribedLayer made{class_name, std::move(config), options.name};
  if (options.return_state) made.outputs = 1 + states;
  return Access::layer(std::move(made));
}

}  // namespace

Layer SimpleRNN(int64_t units, const SimpleRNNOptions& options) {
  return recurrent("SimpleRNN", units, options, 1, json::object());
}

Layer LSTM(int64_t units, const LSTMOptions& options) {
  return recurrent("LSTM", units, options, 2,
                   json_object({{"recurrent_activation", options.recurrent_activation},
                                {"unit_forget_bias", options.unit_forget_bias}}));
}

Layer GRU(int64_t units, const GRUOptions& options) {
  return recurrent(
      "GRU", units, options, 1,
      json_object({{"recurrent_activation", options.recurrent_activation}, {"reset_after", options.reset_after}}));
}

// Keras's configuration holds both layers, named after the one that was given.
Layer Bidirectional(const Layer& layer, const BidirectionalOptions& options) {
  const engine::DescribedLayer& inner = *Access::layer(layer);
  const std::string name = inner.name.empty() ? engine::keras_snake_case(inner.class_name) : inner.name;
  json config = json_object({{"merge_mode", options.merge_mode},
                             {"trainable", options.trainable},
                             {"dtype", engine::policy_json(options.dtype)}});
  const auto direction = [&](const char* key, const std::string& prefix, bool flipped) {
    auto object = engine::layer_json(inner, prefix + name);
    if (!object) {
      config[key] = engine::broken_json("has an error: " + object.error().what);
      return;
    }
    json& own = (*object)["config"];
    if (flipped && own.is_object()) own["go_backwards"] = own["go_backwards"] != json(true);
    config[key] = std::move(*object);
  };
  direction("layer", "forward_", false);
  direction("backward_layer", "backward_", true);
  engine::DescribedLayer made{"Bidirectional", std::move(config), options.name};
  if (inner.outputs > 1) made.outputs = 1 + 2 * (inner.outputs - 1);
  made.depth = inner.depth + 1;
  return Access::layer(std::move(made));
}

}  // namespace plimsoll::layers
