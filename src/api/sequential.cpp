// sequential(): a model whose layers follow one another.
#include <fmt/format.h>

#include <set>

#include "api/layer_graph.h"
#include "api/words.h"
#include "base/json.h"

namespace plimsoll {
namespace {

using engine::Access;
using engine::DescribedLayer;
using LayerPointer = std::shared_ptr<const DescribedLayer>;

LayerPointer layer_of(const SequentialItem& item) {
  if (const auto* tensor = std::get_if<Tensor>(&item.value())) return Access::node(*tensor)->layer;
  if (const auto* layer = std::get_if<Layer>(&item.value())) return Access::layer(*layer);
  return Access::layer(layers::model(std::get<Description>(item.value())));
}

Status check_item(const SequentialItem& item, const DescribedLayer& layer, size_t position) {
  if (!std::holds_alternative<Tensor>(item.value())) return {};
  if (!layer.is_input())
    return fail(
        Error{ErrorCode::kUsage,
              fmt::format("entry {} of sequential() is the result of a call of {}", position, engine::label_of(layer)),
              {},
              {"pass the layer itself instead of its call", "functional({input}, {output})"}});
  if (position > 0)
    return fail(ErrorCode::kUsage,
                fmt::format("entry {} of sequential() is an Input, which can only be the first", position));
  return {};
}

Result<Description> build(const std::vector<SequentialItem>& items, const std::string& name) {
  if (items.empty()) return fail(ErrorCode::kUsage, "sequential() was given no layers");
  PLIMSOLL_TRY(engine::check_name(name, "sequential()"));
  std::vector<LayerPointer> kept;
  std::vector<const DescribedLayer*> list;
  std::set<const DescribedLayer*> seen;
  for (const SequentialItem& item : items) {
    const LayerPointer layer = layer_of(item);
    PLIMSOLL_TRY(check_item(item, *layer, list.size()));
    if (!seen.insert(layer.get()).second)
      return fail(Error{ErrorCode::kUsage,
                        fmt::format("sequential() lists {} twice", engine::label_of(*layer)),
                        {},
                        {"make two layers, or use functional(), in which calls of one Layer share its weights"}});
    kept.push_back(layer);
    list.push_back(layer.get());
  }
  if (list.size() == 1 && list[0]->is_input())
    return fail(ErrorCode::kUsage, "sequential() was given an Input but no layers");
  PLIMSOLL_ASSIGN(const std::vector<std::string> names, engine::layer_names(list));
  nlohmann::json layers = nlohmann::json::array();
  for (size_t i = 0; i < list.size(); ++i) {
    PLIMSOLL_ASSIGN(nlohmann::json object, engine::layer_json(*list[i], names[i]));
    layers.push_back(std::move(object));
  }
  nlohmann::json config = engine::json_object(
      {{"name", name}, {"trainable", true}, {"dtype", engine::policy_json("")}, {"layers", std::move(layers)}});
  return engine::finish_model(engine::keras_json("keras", "Sequential", std::move(config)), list, names);
}

}  // namespace

Result<Description> sequential(const std::vector<SequentialItem>& layers, const std::string& name) {
  return engine::at_border([&] { return build(layers, name); });
}

}  // namespace plimsoll
