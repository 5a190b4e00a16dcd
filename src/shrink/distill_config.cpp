#include "shrink/distill_config.h"

#include <fmt/format.h>

#include "base/json.h"

namespace plimsoll::engine {
namespace {

using Json = nlohmann::json;

tl::unexpected<Error> no_classes(const std::string& name, std::string_view what) {
  return fail(Error{ErrorCode::kUnsupported,
                    fmt::format("{} cannot be distilled: {}", name, what),
                    {},
                    {"distillation compares the logits of two classifiers with one output each"}});
}

std::string text_at(const Json& json, const char* key) {
  const auto found = json.is_object() ? json.find(key) : json.end();
  return json.is_object() && found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

// The output of a layer, as Keras refers to it.
Json keras_tensor(const std::string& layer) {
  return {{"class_name", "__keras_tensor__"},
          {"config",
           {{"shape", Json::array({nullptr})}, {"dtype", "float32"}, {"keras_history", Json::array({layer, 0, 0})}}}};
}

Json call_of(const std::string& layer) {
  return Json::array({{{"args", Json::array({keras_tensor(layer)})}, {"kwargs", Json::object()}}});
}

bool is_plain_sequential(const Json& layers) {
  return layers.is_array() && !layers.empty() && text_at(layers[0], "class_name") == "InputLayer";
}

// A Sequential model becomes the same Functional one.
Result<Json> functional(const Json& config, const std::string& name) {
  const std::string kind = text_at(config, "class_name");
  if (!config.contains("config") || !config["config"].is_object())
    return no_classes(name, "its configuration has no layers");
  if (kind == "Functional" || kind == "Model") return config;
  if (kind != "Sequential") return no_classes(name, fmt::format("it is a {}", kind));
  Json made = config;
  made["class_name"] = "Functional";
  Json& inner = made["config"];
  const Json layers = inner.contains("layers") ? inner["layers"] : Json();
  if (!is_plain_sequential(layers)) return no_classes(name, "it has no Input, so its shapes are open");
  Json list = Json::array();
  std::string before;
  for (Json layer : layers) {
    if (!layer.is_object() || !layer.contains("config") || !layer["config"].is_object())
      return no_classes(name, "its configuration has no layers");
    const std::string own = text_at(layer["config"], "name");
    layer["name"] = own;
    layer["inbound_nodes"] = before.empty() ? Json::array() : call_of(before);
    before = own;
    list.push_back(std::move(layer));
  }
  inner["input_layers"] = Json::array({Json::array({list[0]["name"], 0, 0})});
  inner["output_layers"] = Json::array({Json::array({before, 0, 0})});
  inner["layers"] = std::move(list);
  return made;
}

// The name of the layer whose first call is the one output.
Result<std::string> output_layer(const Json& functional, const std::string& name) {
  const Json& config = functional["config"];
  const Json* at = config.contains("output_layers") ? &config["output_layers"] : nullptr;
  while (at != nullptr && at->is_array() && at->size() == 1 && (*at)[0].is_array()) at = &(*at)[0];
  if (at == nullptr || !at->is_array() || at->size() != 3 || !(*at)[0].is_string() || (*at)[1] != 0 || (*at)[2] != 0)
    return no_classes(name, "it does not have exactly one output");
  return (*at)[0].get<std::string>();
}

Json cross_entropy(const char* name) {
  return {{"module", "keras.losses"},
          {"class_name", name},
          {"config", {{"name", "loss"}, {"reduction", "sum_over_batch_size"}, {"from_logits", true}}},
          {"registered_name", nullptr}};
}

// The class of the loss of the labels: sparse or one-hot.
Result<const char*> label_loss(const Json& compiled, const std::string& name) {
  const Json loss = compiled.is_object() && compiled.contains("loss") ? compiled["loss"] : Json();
  const std::string known = loss.is_string() ? loss.get<std::string>() : text_at(loss, "class_name");
  if (known == "sparse_categorical_crossentropy" || known == "SparseCategoricalCrossentropy")
    return "SparseCategoricalCrossentropy";
  if (known == "categorical_crossentropy" || known == "CategoricalCrossentropy") return "CategoricalCrossentropy";
  return no_classes(
      name, fmt::format("its loss is {}, and not the cross-entropy of classes", known.empty() ? "missing" : known));
}

}  // namespace

Result<Description> with_logits(const Description& description, const std::string& name) {
  Description made = description;
  PLIMSOLL_ASSIGN(made.config, functional(description.config, name));
  PLIMSOLL_ASSIGN(const std::string last, output_layer(made.config, name));
  for (Json& layer : made.config["config"]["layers"]) {
    if (text_at(layer, "name") != last || !layer.is_object() || !layer.contains("config")) continue;
    const std::string kind = text_at(layer, "class_name");
    Json& config = layer["config"];
    const std::string activation = text_at(config, "activation");
    if (kind == "Softmax") {
      layer["class_name"] = "Activation";
      config = {{"name", last}, {"activation", "linear"}};
    } else if (activation == "softmax") {
      config["activation"] = "linear";
    } else if (!activation.empty() && activation != "linear") {
      return no_classes(name, fmt::format("its last layer {} ends in {}", last, activation));
    }
    return made;
  }
  return no_classes(name, "its configuration has no layers");
}

Result<Description> with_teacher(const Description& logits, double temperature, double alpha, const std::string& name) {
  Description made = logits;
  PLIMSOLL_ASSIGN(const std::string last, output_layer(made.config, name));
  PLIMSOLL_ASSIGN(const char* hard, label_loss(logits.compile_config, name));
  Json& config = made.config["config"];
  config["layers"].push_back({{"module", "keras.layers"},
                              {"class_name", "Rescaling"},
                              {"config", {{"name", kTeacherOutput}, {"scale", 1 / temperature}, {"offset", 0.0}}},
                              {"registered_name", nullptr},
                              {"name", kTeacherOutput},
                              {"inbound_nodes", call_of(last)}});
  config["output_layers"] = Json::array({Json::array({last, 0, 0}), Json::array({kTeacherOutput, 0, 0})});
  made.compile_config["loss"] = Json::array({cross_entropy(hard), cross_entropy("CategoricalCrossentropy")});
  made.compile_config["loss_weights"] = Json::array({alpha, (1 - alpha) * temperature * temperature});
  made.compile_config["metrics"] = nullptr;
  made.compile_config["weighted_metrics"] = nullptr;
  return made;
}

}  // namespace plimsoll::engine
