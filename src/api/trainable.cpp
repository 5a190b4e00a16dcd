// Sets which layers of a description are trained.
#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>

#include "api/layer_graph.h"
#include "api/words.h"
#include "base/printable.h"
#include "base/suggest.h"
#include "plimsoll/description.h"

namespace plimsoll {
namespace {

using nlohmann::json;

struct NamedLayer {
  json* object;
  std::string name, path;
  std::vector<json*> around;  // the models that contain the layer, outermost first
};

// Collects all layers of a model except its inputs. The recursion is safe, because reading a model limits the nesting
// to 32 levels.
void collect_layers(json& model, const std::string& prefix, std::vector<json*> around, std::vector<NamedLayer>& out) {
  around.push_back(&model);
  for (json& layer : model["config"]["layers"]) {
    const std::string class_name = layer.value("class_name", "");
    if (class_name == engine::kInputLayer) continue;
    json& config = layer["config"];
    std::string name = layer.value("name", "");
    if (name.empty() && config.is_object()) name = config.value("name", "");
    out.push_back({&layer, name, prefix + name, around});
    if (config.is_object() && config.contains("layers") && config["layers"].is_array())
      collect_layers(layer, prefix + name + "/", around, out);
  }
}

bool is_trainable(const json& object) {
  const json& config = object["config"];
  const auto found = config.find("trainable");
  return found == config.end() || !found->is_boolean() || found->get<bool>();
}

// Makes the frozen models around a layer trainable. Their layers are frozen one by one first, so that they stay frozen.
void train_models_around(const NamedLayer& layer) {
  for (json* model : layer.around) {
    if (is_trainable(*model)) continue;
    for (json& inner : (*model)["config"]["layers"]) engine::set_all_trainable(inner, false);
    (*model)["config"]["trainable"] = true;
  }
}

bool matches(const std::string& pattern, const NamedLayer& layer) {
  return fnmatch(pattern.c_str(), layer.path.c_str(), 0) == 0 || fnmatch(pattern.c_str(), layer.name.c_str(), 0) == 0;
}

Error no_match(const std::string& pattern, const std::vector<NamedLayer>& layers) {
  constexpr size_t kShown = 8;
  std::vector<std::string> paths;
  for (const NamedLayer& layer : layers) paths.push_back(layer.path);
  Error error{
      ErrorCode::kUsage, fmt::format("set_trainable(): no layer matches '{}'", engine::printable(pattern)), {}, {}};
  const std::string meant = engine::suggestion(pattern, paths);
  const size_t others = paths.size() - std::min(paths.size(), kShown);
  paths.resize(paths.size() - others);
  error.fact(fmt::format("its layers: {}{}", engine::printable(fmt::format("{}", fmt::join(paths, ", "))),
                         others == 0 ? "" : fmt::format(" and {} others", others)));
  if (!meant.empty()) error.remedy(engine::printable(meant));
  error.remedy("a name or a pattern: \"block5_*\", \"backbone/*\"");
  return error;
}

}  // namespace

Result<Description> Description::set_trainable(std::string_view layer_pattern, bool trainable) const {
  return engine::at_border([&]() -> Result<Description> {
    engine::DescribedModel made = *model_;
    std::vector<NamedLayer> layers;
    collect_layers(made.description.config, "", {}, layers);
    const std::string pattern(layer_pattern);
    bool any = false;
    for (const NamedLayer& layer : layers) {
      if (!matches(pattern, layer)) continue;
      any = true;
      if (trainable) train_models_around(layer);
      engine::set_all_trainable(*layer.object, trainable);
    }
    if (!any) return fail(no_match(pattern, layers));
    return engine::Access::description(std::move(made));
  });
}

std::vector<std::string> Description::layer_names() const {
  json config = model_->description.config;
  std::vector<NamedLayer> layers;
  collect_layers(config, "", {}, layers);
  std::vector<std::string> names;
  for (const NamedLayer& layer : layers) names.push_back(layer.path);
  return names;
}

}  // namespace plimsoll
