// Makes the smaller model: its description, and slices of the weights and of the optimizer's state.
#include <fmt/format.h>

#include <algorithm>

#include "model/config.h"
#include "model/tree.h"
#include "shrink/prune.h"

namespace plimsoll::engine {
namespace {

int64_t kept_of(const Classes& classes, const std::vector<bool>& keep) {
  return std::count_if(classes.begin(), classes.end(), [&](int32_t one) { return keep[static_cast<size_t>(one)]; });
}

// The indices of each axis that stay; empty: all of them.
using Kept = std::vector<std::vector<size_t>>;

std::vector<float> slice(const std::vector<float>& from, const Shape& shape, const Kept& kept) {
  std::vector<size_t> strides(shape.rank(), 1), sizes(shape.rank()), at(shape.rank(), 0);
  for (size_t d = shape.rank(); d-- > 1;) strides[d - 1] = strides[d] * static_cast<size_t>(shape[d]);
  size_t count = 1;
  for (size_t d = 0; d < shape.rank(); ++d) {
    sizes[d] = kept[d].empty() ? static_cast<size_t>(shape[d]) : kept[d].size();
    count *= sizes[d];
  }
  std::vector<float> made(count);
  for (float& value : made) {
    size_t index = 0;
    for (size_t d = 0; d < at.size(); ++d) index += strides[d] * (kept[d].empty() ? at[d] : kept[d][at[d]]);
    value = from[index];
    for (size_t d = at.size(); d-- > 0;) {
      if (++at[d] < sizes[d]) break;
      at[d] = 0;
    }
  }
  return made;
}

void forget_shapes_in(Json& json, int depth = 0) {
  constexpr int kDeepest = 64;
  if (depth > kDeepest || !json.is_structured()) return;
  if (json.is_object()) {
    if (json.contains("class_name") && json.contains("build_config")) json["build_config"] = nullptr;
    if (text_member(json, "class_name") == "__keras_tensor__" && json.contains("config") &&
        json["config"].is_object() && json["config"].contains("shape") && json["config"]["shape"].is_array())
      for (Json& size : json["config"]["shape"]) size = nullptr;
  }
  for (auto& inner : json) forget_shapes_in(inner, depth + 1);
}

void set_width(Json& config, const Width& width, int64_t size, const std::vector<int64_t>& input_sizes) {
  if (width.key != "output_shape") {
    config[width.key] = size;
    return;
  }
  // An attention without output_shape has the width of its query.
  const Json* given = member(config, "output_shape");
  const bool is_given = given != nullptr && !given->is_null();
  if (is_given || std::any_of(input_sizes.begin(), input_sizes.end(), [&](int64_t one) { return one != size; }))
    config["output_shape"] = Json::array({size});
}

void set_last(Json& shape, int64_t size) {
  if (shape.is_number_integer()) shape = size;
  if (shape.is_array() && !shape.empty() && shape.back().is_number_integer()) shape.back() = size;
}

Description change_description(const HeldModel& from, const ChannelMap& map, const std::vector<bool>& keep) {
  const LayerTree& tree = from.model.architecture().parts().tree;
  Description made = from.description;
  const auto config_of = [&](size_t layer) -> Json* {
    Json* object = layer_object(made.config, tree.layers[layer].names);
    return object != nullptr && object->contains("config") ? &(*object)["config"] : nullptr;
  };
  for (const Width& width : map.widths) {
    std::vector<int64_t> inputs;
    for (const LayerCall& call : map.program.calls)
      if (call.layer == width.layer) inputs.push_back(kept_of(map.tensors[call.inputs[0]], keep));
    if (Json* config = config_of(width.layer)) set_width(*config, width, kept_of(width.classes, keep), inputs);
  }
  for (const FollowingSize& one : map.following)
    if (Json* config = config_of(one.layer); config != nullptr && config->contains(one.key))
      set_last((*config)[one.key], kept_of(one.classes, keep));
  forget_shapes(made);
  for (const NestedInput& one : map.nested) {
    Json* object = layer_object(made.config, one.names);
    if (object == nullptr || !object->contains("config")) continue;
    Json& config = (*object)["config"];
    for (const char* key : {"batch_shape", "batch_input_shape", "build_input_shape"})
      if (config.contains(key)) set_last(config[key], kept_of(one.classes, keep));
  }
  return made;
}

// The indices that stay of each axis of each weight.
std::vector<Kept> kept_axes(const Model& model, const ChannelMap& map, const std::vector<bool>& keep) {
  std::vector<Kept> kept;
  for (const Weight& weight : model.weights()) kept.emplace_back(weight.shape.rank());
  for (const WeightAxis& axis : map.axes) {
    std::vector<size_t>& list = kept[axis.weight][axis.axis];
    for (size_t i = 0; i < axis.classes.size(); ++i)
      if (keep[static_cast<size_t>(axis.classes[i])]) list.push_back(i);
    if (list.size() == axis.classes.size()) list.clear();  // all of them
  }
  return kept;
}

}  // namespace

void forget_shapes(Description& description) {
  if (description.config.contains("config")) forget_shapes_in(description.config["config"]);
}

Result<HeldModel> cut(const HeldModel& from, const ChannelMap& map, const std::vector<bool>& keep, bool values) {
  PLIMSOLL_ASSIGN(HeldModel made, with_description(from, change_description(from, map, keep)));
  if (!values) return made;
  const std::vector<Kept> kept = kept_axes(from.model, map, keep);
  std::map<std::string, size_t> index;
  for (size_t i = 0; i < from.model.weights().size(); ++i) index.emplace(from.model.weights()[i].name, i);
  for (const Weight& weight : made.model.weights()) {
    const auto at = index.find(weight.name);
    const size_t i = at == index.end() ? 0 : at->second;
    std::vector<float> sliced;
    if (at != index.end()) sliced = slice(from.values.at(weight.name), from.model.weights()[i].shape, kept[i]);
    if (static_cast<int64_t>(sliced.size()) != weight.shape.elements())
      return fail(ErrorCode::kInternal, fmt::format("the slice of {} has {} values, but [{}] was expected", weight.name,
                                                    sliced.size(), to_text(weight.shape)));
    made.values.emplace(weight.name, std::move(sliced));
  }
  if (!from.has_state) return made;
  const std::vector<StateVariable> before = state_of(from.model), after = state_of(made.model);
  for (size_t k = 0; k < after.size() && k < before.size(); ++k) {
    if (after[k].value.empty()) continue;
    const auto& old = from.values.at(before[k].value);
    const size_t slash = after[k].value.rfind('/');
    const auto owner = index.find(after[k].value.substr(0, slash == std::string::npos ? 0 : slash));
    if (owner != index.end() && before[k].shape == from.model.weights()[owner->second].shape) {
      made.values.emplace(after[k].value, slice(old, before[k].shape, kept[owner->second]));
    } else if (before[k].shape == after[k].shape) {
      made.values.emplace(after[k].value, old);
    } else {
      // Sums over rows or columns (Adafactor) cannot be sliced exactly, so they start anew.
      made.values.emplace(after[k].value, std::vector<float>(static_cast<size_t>(after[k].shape.elements()),
                                                             static_cast<float>(after[k].number)));
    }
  }
  return made;
}

}  // namespace plimsoll::engine
