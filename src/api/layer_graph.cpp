#include "api/layer_graph.h"

#include <fmt/format.h>

#include <map>
#include <set>

#include "base/json.h"
#include "base/printable.h"
#include "formats/keras/layer_paths.h"
#include "model/architecture.h"

namespace plimsoll::engine {

CallNode::~CallNode() {
  std::vector<NodeOutput> rest = std::move(inputs);
  while (!rest.empty()) {
    const NodeOutput last = std::move(rest.back());
    rest.pop_back();
    if (last.node.use_count() != 1) continue;  // its last owner destroys it, also with this loop
    for (NodeOutput& input : last.node->inputs) rest.push_back(std::move(input));
    last.node->inputs.clear();
  }
}

const std::shared_ptr<const DescribedLayer>& Access::layer(const Layer& layer) {
  return layer.layer_;
}

plimsoll::Layer Access::layer(DescribedLayer layer) {
  return plimsoll::Layer(std::make_shared<const DescribedLayer>(std::move(layer)));
}

plimsoll::Description Access::description(DescribedModel model) {
  return plimsoll::Description(std::make_shared<const DescribedModel>(std::move(model)));
}

std::string label_of(const DescribedLayer& layer, const std::string& name) {
  return fmt::format("layer '{}' ({})", printable(name), printable(layer.class_name));
}

std::string label_of(const DescribedLayer& layer) {
  return layer.name.empty() ? fmt::format("a layer without a name ({})", printable(layer.class_name))
                            : label_of(layer, layer.name);
}

Result<std::vector<std::string>> layer_names(const std::vector<const DescribedLayer*>& layers) {
  std::map<std::string, const DescribedLayer*> taken;
  for (const DescribedLayer* layer : layers) {
    if (layer->name.empty()) continue;
    PLIMSOLL_TRY(check_name(layer->name, label_of(*layer)));
    const auto [other, is_new] = taken.emplace(layer->name, layer);
    if (!is_new)
      return fail(Error{ErrorCode::kUsage,
                        fmt::format("{}: another layer, a {}, has the same name", label_of(*layer),
                                    printable(other->second->class_name)),
                        {},
                        {"set another .name; to share a layer's weights, call the same Layer twice"}});
  }
  std::map<std::string, int> used;
  std::vector<std::string> names;
  for (const DescribedLayer* layer : layers) {
    std::string name = layer->name;
    const std::string base = keras_snake_case(layer->class_name);
    while (name.empty() || (layer->name.empty() && taken.contains(name))) {
      const int count = used[base]++;
      name = count == 0 ? base : fmt::format("{}_{}", base, count);
      if (name.empty()) return fail(ErrorCode::kUsage, "a layer has neither a name nor a class");
    }
    names.push_back(std::move(name));
  }
  return names;
}

Result<nlohmann::json> layer_json(const DescribedLayer& layer, const std::string& name) {
  const std::string where = label_of(layer, name);
  PLIMSOLL_TRY(check_json(layer.class_name, where));
  PLIMSOLL_TRY(check_json(layer.config, where));
  if (layer.model) {
    nlohmann::json object = layer.config;
    object["config"]["name"] = name;
    return object;
  }
  nlohmann::json object = keras_json(layer.module, layer.class_name, layer.config);
  object["config"]["name"] = name;
  if (layer.module != "keras.layers") object["registered_name"] = layer.class_name;
  return object;
}

Status check_architecture(const Description& description, bool compiled) {
  ModelOptions options;
  options.needs_loss = options.needs_training = compiled;
  PLIMSOLL_TRY(Architecture::read(description, options));
  return {};
}

Result<plimsoll::Description> finish_model(nlohmann::json config, const std::vector<const DescribedLayer*>& layers,
                                           const std::vector<std::string>& names) {
  DescribedModel made{{std::move(config), nlohmann::json()}, "", {}};
  PLIMSOLL_TRY(check_architecture(made.description, false));
  PLIMSOLL_ASSIGN(const std::vector<LayerPath> paths, layer_paths(made.description.config));
  std::map<std::string, std::string> groups;
  for (const LayerPath& path : paths)
    if (path.layer_names.size() == 1) groups[path.layer_names[0]] = path.group;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (!layers[i]->model) continue;
    const std::string prefix = groups[names[i]] + "/";
    if (!layers[i]->model->file.empty()) made.nested.push_back({layers[i]->model->file, prefix});
    for (const NestedWeights& inner : layers[i]->model->nested)
      made.nested.push_back({inner.file, prefix + inner.prefix});
  }
  return Access::description(std::move(made));
}

void set_all_trainable(nlohmann::json& model, bool trainable) {
  nlohmann::json& config = model["config"];
  if (model.value("class_name", "") == kInputLayer) return;
  config["trainable"] = trainable;
  if (config.contains("layers") && config["layers"].is_array())
    for (nlohmann::json& layer : config["layers"]) set_all_trainable(layer, trainable);
}

}  // namespace plimsoll::engine

namespace plimsoll {

std::vector<Tensor> Layer::outputs(const std::vector<Tensor>& inputs) const {
  std::vector<engine::NodeOutput> on;
  for (const Tensor& input : inputs) on.push_back({engine::Access::node(input), engine::Access::index(input)});
  const auto node = std::make_shared<engine::CallNode>(layer_, std::move(on));
  std::vector<Tensor> made;
  for (size_t i = 0; i < layer_->outputs; ++i) made.push_back(engine::Access::tensor(node, i));
  return made;
}

Tensor Layer::operator()(const Tensor& input) const {
  return outputs({input}).front();
}
Tensor Layer::operator()(const std::vector<Tensor>& inputs) const {
  return outputs(inputs).front();
}

std::string Layer::class_name() const {
  return layer_->class_name;
}
std::string Layer::name() const {
  return layer_->name;
}
std::string Layer::to_json() const {
  return engine::shown_json(layer_->config);
}

}  // namespace plimsoll
