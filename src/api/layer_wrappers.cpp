// Layers that hold other layers or whole models, layers of any class, and functions of keras.ops.
#include <fmt/format.h>

#include "api/layer_graph.h"
#include "base/json.h"
#include "formats/keras/layer_paths.h"
#include "plimsoll/layers.h"

namespace plimsoll {
namespace layers {
namespace {

using engine::Access;
using engine::DescribedLayer;
using nlohmann::json;

// Returns the layer as JSON for its wrapper. Errors in it are reported when a model is built.
json wrapped_json(const DescribedLayer& inner) {
  constexpr int kDeepest = 8;
  if (inner.depth > kDeepest)
    return engine::broken_json(fmt::format("is a layer that wraps others more than {} deep", kDeepest));
  const std::string name = inner.name.empty() ? engine::keras_snake_case(inner.class_name) : inner.name;
  auto object = engine::layer_json(inner, name);
  return object ? std::move(*object) : engine::broken_json(fmt::format("has an error: {}", object.error().what));
}

// Returns the layer that wraps `layer`; `config` has what only this wrapper has.
template <typename Options>
Layer wrapper(const char* class_name, const Layer& layer, const Options& options, json config) {
  const DescribedLayer& inner = *Access::layer(layer);
  config["layer"] = wrapped_json(inner);
  config["trainable"] = options.trainable;
  config["dtype"] = engine::policy_json(options.dtype);
  DescribedLayer made{class_name, std::move(config), options.name};
  made.depth = inner.depth + 1;
  return Access::layer(std::move(made));
}

}  // namespace

Layer TimeDistributed(const Layer& layer, const LayerOptions& options) {
  return wrapper("TimeDistributed", layer, options, engine::json_object({}));
}

Layer SpectralNormalization(const Layer& layer, const SpectralNormalizationOptions& options) {
  return wrapper("SpectralNormalization", layer, options,
                 engine::json_object({{"power_iterations", options.power_iterations}}));
}

Layer Custom(const std::string& class_name, const std::string& config_json, const LayerOptions& options) {
  json config = engine::parsed_json(config_json);
  std::string name = options.name;
  if (config.is_object()) {
    if (const auto own = config.find("name"); own != config.end() && own->is_string()) {
      if (name.empty()) name = own->get<std::string>();
      config.erase(own);
    }
    if (!options.trainable || !config.contains("trainable")) config["trainable"] = options.trainable;
    if (!options.dtype.empty() || !config.contains("dtype")) config["dtype"] = engine::policy_json(options.dtype);
  }
  if (class_name.empty() || class_name == engine::kInputLayer)
    config = engine::broken_json(class_name.empty() ? "has no class name" : "is made by layers::Input()");
  return Access::layer(DescribedLayer{class_name.empty() ? "Custom" : class_name, std::move(config), std::move(name)});
}

Layer model(const Description& description, const ModelOptions& options) {
  const auto& inner = Access::model(description);
  json object = inner->description.config;
  if (!options.trainable) engine::set_all_trainable(object, false);
  size_t outputs = 1;
  const json& config = object["config"];
  if (const auto ports = config.find("output_layers"); ports != config.end() && ports->is_structured())
    outputs = !ports->empty() && ports->begin()->is_string() ? 1 : ports->size();
  const std::string class_name = object.value("class_name", "Functional");
  DescribedLayer made{class_name, std::move(object), options.name.empty() ? description.name() : options.name};
  made.outputs = outputs;
  made.model = inner;
  return Access::layer(std::move(made));
}

}  // namespace layers

namespace ops {

std::vector<Tensor> split(const Tensor& tensor, int64_t sections, int64_t axis) {
  constexpr int64_t kMost = 4096;
  engine::DescribedLayer operation{"Split", engine::json_object({{"indices_or_sections", sections}, {"axis", axis}}),
                                   "", "keras.src.ops.numpy"};
  if (sections < 1 || sections > kMost)
    operation.config = engine::broken_json(fmt::format("needs 1 to {} sections, got {}", kMost, sections));
  else
    operation.outputs = static_cast<size_t>(sections);
  return engine::Access::layer(std::move(operation)).outputs({tensor});
}

}  // namespace ops
}  // namespace plimsoll
