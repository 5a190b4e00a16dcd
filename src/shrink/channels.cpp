#include "shrink/channels.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "model/config.h"
#include "shrink/channel_finder.h"

namespace plimsoll::engine {
namespace {

Json* find_member(Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

std::string name_of_layer(const Json& layer) {
  const std::string own = text_member(layer, "name");
  const Json* config = member(layer, "config");
  return !own.empty() || config == nullptr ? own : text_member(*config, "name");
}

}  // namespace

Json* layer_object(Json& model, const std::vector<std::string>& names) {
  Json* at = &model;
  for (const std::string& name : names) {
    Json* config = find_member(*at, "config");
    Json* layers = config != nullptr ? find_member(*config, "layers") : nullptr;
    if (layers == nullptr || !layers->is_array()) return nullptr;
    const auto found =
        std::find_if(layers->begin(), layers->end(), [&](const Json& layer) { return name_of_layer(layer) == name; });
    if (found == layers->end()) return nullptr;
    at = &*found;
  }
  return at;
}

ChannelFinder::ChannelFinder(const Description& description, const Model& model, bool statistics)
    : model_config_(description.config),
      model_(model),
      tree_(model.architecture().parts().tree),
      statistics_(statistics) {}

int32_t ChannelFinder::root(int32_t channel) {
  while (parent_[static_cast<size_t>(channel)] != channel) {
    int32_t& parent = parent_[static_cast<size_t>(channel)];
    parent = parent_[static_cast<size_t>(parent)];
    channel = parent;
  }
  return channel;
}

Classes ChannelFinder::fresh(size_t count) {
  Classes made(count);
  std::iota(made.begin(), made.end(), static_cast<int32_t>(parent_.size()));
  parent_.insert(parent_.end(), made.begin(), made.end());
  return made;
}

void ChannelFinder::tie(const Classes& a, const Classes& b) {
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const int32_t first = root(a[i]), second = root(b[i]);
    if (first == second) continue;
    parent_[static_cast<size_t>(std::max(first, second))] = std::min(first, second);
    const auto lost = locks_.find(std::max(first, second));
    if (lost != locks_.end()) locks_.emplace(std::min(first, second), lost->second);
  }
}

void ChannelFinder::lock(const Classes& channels, const std::string& why) {
  for (const int32_t channel : channels) locks_.emplace(root(channel), why);
}

Json ChannelFinder::config(const LayerCall& call) {
  const Json* object = layer_object(model_config_, this->object(call).names);
  const Json* config = object != nullptr ? member(*object, "config") : nullptr;
  return config != nullptr ? *config : Json::object();
}

bool ChannelFinder::has_only_numbers(const LayerCall& call) {
  const Json* object = layer_object(model_config_, this->object(call).names);
  const Json* nodes = object != nullptr ? member(*object, "inbound_nodes") : nullptr;
  if (nodes == nullptr || !nodes->is_array()) return false;
  const auto plain = [](const Json& argument) {
    return argument.is_number() || text_member(argument, "class_name") == "__keras_tensor__";
  };
  for (const Json& node : *nodes)
    for (const char* key : {"args", "kwargs"})
      if (const Json* list = member(node, key))
        if (!std::all_of(list->begin(), list->end(), plain)) return false;
  return true;
}

int ChannelFinder::find_weight(size_t layer, const std::string& name) const {
  for (const size_t weight : map_.weights_of[layer])
    if (model_.weights()[weight].name == tree_.layers[layer].path + "/" + name) return static_cast<int>(weight);
  return -1;
}

Classes ChannelFinder::width(size_t layer, const std::string& key, int64_t size) {
  const auto [found, added] = width_of_.emplace(std::pair(layer, key), map_.widths.size());
  if (added) map_.widths.push_back({layer, key, fresh(static_cast<size_t>(size))});
  return map_.widths[found->second].classes;
}

void ChannelFinder::use(size_t layer, const std::string& name, size_t axis, const Classes& channels, bool reads) {
  const int weight = find_weight(layer, name);
  if (weight < 0) return;
  const auto [found, added] = axis_of_.emplace(std::pair(static_cast<size_t>(weight), axis), map_.axes.size());
  if (added)
    map_.axes.push_back({static_cast<size_t>(weight), axis, reads, channels});
  else
    tie(map_.axes[found->second].classes, channels);
}

void ChannelFinder::follow(size_t layer, const std::string& key, const Classes& channels) {
  for (const FollowingSize& one : map_.following)
    if (one.layer == layer && one.key == key) return tie(one.classes, channels);
  map_.following.push_back({layer, key, channels});
}

void ChannelFinder::reader(size_t call, size_t tensor, const std::string& kernel, size_t axis,
                           std::vector<size_t> outputs, const std::string& bias) {
  const size_t layer = this->call(call).layer;
  const int weight = find_weight(layer, kernel);
  if (weight < 0) return;
  map_.readers.push_back({call, tensor, static_cast<size_t>(weight), axis, std::move(outputs),
                          bias.empty() ? -1 : find_weight(layer, bias)});
}

Status ChannelFinder::make_program() {
  LayerProgram& program = map_.program;
  const auto& specs = model_.inputs();
  for (const Port& port : specs) {
    program.inputs.push_back(program.tensors.size());
    program.tensors.push_back(port.sample);
    program.kinds.push_back(port.dtype == DType::kBool ? TensorKind::kTruth
                            : is_floating(port.dtype)  ? TensorKind::kFloat
                                                       : TensorKind::kInteger);
    program.masks.push_back(kNoMask);
    program.shared.push_back(false);
  }
  Issues issues;
  PLIMSOLL_TRY(expand_calls(tree_, program, issues));
  PLIMSOLL_TRY(issues.status());
  std::map<std::string, size_t> layer_of;
  for (size_t i = 0; i < tree_.layers.size(); ++i) layer_of.emplace(tree_.layers[i].path, i);
  map_.weights_of.resize(tree_.layers.size());
  for (size_t i = 0; i < model_.weights().size(); ++i)
    map_.weights_of[layer_of.at(model_.weights()[i].layer)].push_back(i);
  map_.tensors.resize(program.tensors.size());
  std::vector<size_t> order(program.calls.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return program.calls[a].outputs[0] < program.calls[b].outputs[0]; });
  for (const size_t i : order) calls_of_[{program.calls[i].layer, program.calls[i].node}].push_back(i);
  return {};
}

// Follows the calls as expand_calls() does, to find the tensors that nested models are called on.
Status ChannelFinder::walk(const ModelTree& tree, const std::vector<std::string>& names,
                           const std::vector<size_t>& arguments, std::vector<size_t>& outputs) {
  std::vector<std::vector<std::vector<size_t>>> made(tree.children.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const ModelTree::Child& child = tree.children[tree.inputs[i].child];
    made[tree.inputs[i].child] = {{arguments[i]}};
    if (names.empty()) continue;
    std::vector<std::string> path = names;
    if (!child.name.empty()) path.push_back(child.name);
    const Classes& channels = map_.tensors[arguments[i]];
    const auto [found, added] = nested_of_.emplace(path, map_.nested.size());
    if (added)
      map_.nested.push_back({path, !child.name.empty(), channels});
    else
      tie(map_.nested[found->second].classes, channels);
  }
  for (const ModelTree::Call& call : tree.calls) {
    std::vector<size_t> inputs, results;
    for (const TensorRef& ref : call.inputs) inputs.push_back(made[ref.child][ref.node][ref.tensor]);
    const ModelTree::Child& child = tree.children[call.child];
    if (child.kind == ModelTree::Child::Kind::kModel) {
      std::vector<std::string> inner = names;
      inner.push_back(child.name);
      PLIMSOLL_TRY(walk(tree_.models[child.index], inner, inputs, results));
    } else {
      auto& calls = calls_of_.at({child.index, made[call.child].size()});
      const size_t index = calls.front();
      if (calls.size() > 1) calls.erase(calls.begin());
      follow_channels(*this, index);
      results = map_.program.calls[index].outputs;
    }
    made[call.child].push_back(std::move(results));
  }
  for (const TensorRef& ref : tree.outputs) outputs.push_back(made[ref.child][ref.node][ref.tensor]);
  return {};
}

Result<ChannelMap> ChannelFinder::run() {
  PLIMSOLL_TRY(make_program());
  for (const size_t tensor : map_.program.inputs) {
    const Shape& sample = shape(tensor);
    set(tensor, fresh(sample.rank() == 0 ? 0 : static_cast<size_t>(sample.back())));
    lock(channels(tensor), "they are an input of the model");
  }
  std::vector<size_t> outputs;
  PLIMSOLL_TRY(walk(tree_.top(), {}, map_.program.inputs, outputs));
  for (const size_t tensor : outputs) lock(channels(tensor), "they are an output of the model");
  for (const LayerCall& call : map_.program.calls)
    for (const size_t mask : call.given_masks)
      if (mask != kNoMask) lock(channels(mask), "they are the mask of another layer");
  finish();
  make_groups();
  return std::move(map_);
}

// Numbers the classes from 0.
void ChannelFinder::finish() {
  std::vector<int32_t> class_of(parent_.size(), -1);
  int32_t count = 0;
  std::map<int32_t, std::string> locks;
  const auto number = [&](Classes& channels) {
    for (int32_t& channel : channels) {
      const int32_t top = root(channel);
      int32_t& made = class_of[static_cast<size_t>(top)];
      if (made < 0) {
        made = count++;
        if (const auto lock = locks_.find(top); lock != locks_.end()) locks.emplace(made, lock->second);
      }
      channel = made;
    }
  };
  for (Classes& one : map_.tensors) number(one);
  for (Width& one : map_.widths) number(one.classes);
  for (WeightAxis& one : map_.axes) number(one.classes);
  for (FollowingSize& one : map_.following) number(one.classes);
  for (NestedInput& one : map_.nested) number(one.classes);
  locks_ = std::move(locks);
  map_.group_of.assign(static_cast<size_t>(count), -1);
}

void ChannelFinder::make_groups() {
  std::vector<std::set<size_t>> widths_of(map_.classes());
  for (size_t w = 0; w < map_.widths.size(); ++w)
    for (const int32_t one : map_.widths[w].classes) widths_of[static_cast<size_t>(one)].insert(w);
  // A class that is locked keeps the others of its widths: they are separate groups.
  std::map<std::pair<std::vector<size_t>, std::string>, size_t> group_of;
  for (size_t i = 0; i < widths_of.size(); ++i) {
    if (widths_of[i].empty()) continue;
    const auto lock = locks_.find(static_cast<int32_t>(i));
    const std::string why = lock == locks_.end() ? "" : lock->second;
    std::vector<size_t> widths(widths_of[i].begin(), widths_of[i].end());
    const auto [found, added] = group_of.emplace(std::pair(widths, why), map_.groups.size());
    if (added) map_.groups.push_back({std::move(widths), {}, why});
    map_.groups[found->second].classes.push_back(static_cast<int32_t>(i));
    map_.group_of[i] = static_cast<int32_t>(found->second);
  }
}

Result<ChannelMap> find_channels(const Description& description, const Model& model, bool statistics) {
  return ChannelFinder(description, model, statistics).run();
}

}  // namespace plimsoll::engine
