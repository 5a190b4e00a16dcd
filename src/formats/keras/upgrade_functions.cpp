#include "formats/keras/upgrade_functions.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "formats/keras/function_table.h"

namespace plimsoll::engine {
namespace {

using Json = nlohmann::json;

constexpr const char* kConstant = "_CONSTANT_VALUE";  // in the place of a layer's name: the argument is no tensor

const Json* find(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found != object.end() ? &*found : nullptr;
}

std::string text(const Json& object, const char* key) {
  const Json* found = find(object, key);
  return found != nullptr && found->is_string() ? found->get<std::string>() : "";
}

bool is_function(const Json& layer) {
  const std::string name = text(layer, "class_name");
  return (name == "TFOpLambda" || name == "SlicingOpLambda") && find(layer, "config") != nullptr;
}

bool is_argument(const Json& value) {
  return value.is_array() && (value.size() == 3 || value.size() == 4) && value[0].is_string() &&
         value[1].is_number_integer();
}

// The form of Keras 3. Its shape and dtype are those of nothing that exists: Keras reads the history alone.
Json new_tensor(const Json& old, size_t rank) {
  Json shape = Json::array();
  for (size_t d = 0; d < std::max<size_t>(rank, 1); ++d) shape.push_back(nullptr);
  return json_object({{"class_name", "__keras_tensor__"},
                      {"config", json_object({{"shape", std::move(shape)},
                                              {"dtype", "float32"},
                                              {"keras_history", Json::array({old[0], old[1], old[2]})}})}});
}

Json with_new_tensors(const Json& value, size_t rank) {  // NOLINT(misc-no-recursion): the depth of JSON is limited
  if (is_old_tensor(value)) return new_tensor(value, rank);
  if (!value.is_structured()) return value;
  Json made = value;
  for (Json& one : made) one = with_new_tensors(one, rank);
  return made;
}

bool holds_tensor(const Json& value) {  // NOLINT(misc-no-recursion)
  if (is_old_tensor(value)) return true;
  if (!value.is_structured()) return false;
  return std::any_of(value.begin(), value.end(), [](const Json& one) { return holds_tensor(one); });
}

// One call of a function: its first argument, and those with a name.
struct Call {
  Json first;
  std::map<std::string, Json> named;
};

Json plain_argument(const Json& one) {
  return one[0] == kConstant ? one[2] : Json::array({one[0], one[1], one[2]});
}

// Reads ["x", 0, 0, {...}], or a list of these, all with the same named arguments.
std::optional<Call> read_call(const Json& node) {
  Call call;
  const bool single = is_argument(node);
  if (!node.is_array() || node.empty()) return std::nullopt;
  const Json list = single ? Json::array({node}) : node;
  call.first = Json::array();
  for (const Json& one : list) {
    if (!is_argument(one)) return std::nullopt;
    call.first.push_back(plain_argument(one));
    if (one.size() < 4) continue;
    if (!one[3].is_object()) return std::nullopt;
    for (const auto& [key, value] : one[3].items()) call.named[key] = value;
  }
  if (single) {
    Json only = std::move(call.first[0]);
    call.first = std::move(only);
  }
  call.named.erase("name");
  for (auto at = call.named.begin(); at != call.named.end();)
    at = at->second.is_null() ? call.named.erase(at) : std::next(at);
  return call;
}

// What the functions tf.shape(x) and tf.shape(x)[0] stand for.
class Sizes {
 public:
  // Returns whether the layer computes a shape, or the batch size from one.
  bool note(const std::string& name, const std::string& function, const Call& call) {
    if (function == "shape" || function == "compat.v1.shape") return shapes_.insert(name).second;
    const bool of_shape = is_old_tensor(call.first) && shapes_.count(call.first[0].get<std::string>()) != 0;
    if (!of_shape) return false;
    if (function == "unstack") return lists_.insert(name).second;
    const auto spec = call.named.find("slice_spec");
    const bool batch = function == "__operators__.getitem" && spec != call.named.end() &&
                       (spec->second == Json(0) || spec->second == Json::array({0}));
    return batch && numbers_.insert(name).second;
  }
  bool is_batch(const Json& value) const {
    if (!is_old_tensor(value)) return false;
    const auto name = value[0].get<std::string>();
    return numbers_.count(name) != 0 || (lists_.count(name) != 0 && value[2] == Json(0));
  }
  bool knows(const std::string& name) const { return shapes_.count(name) + lists_.count(name) + numbers_.count(name); }

 private:
  std::set<std::string> shapes_, lists_, numbers_;
};

Json layer_json(const std::string& name, const Target& to, Json config, Json arguments) {
  config["name"] = name;
  return json_object(
      {{"module", to.module},
       {"class_name", to.class_name},
       {"config", std::move(config)},
       {"registered_name", is_operation(to) ? Json(to.class_name) : Json()},
       {"name", name},
       {"inbound_nodes", Json::array({json_object({{"args", std::move(arguments)}, {"kwargs", Json::object()}})})}});
}

// The layers for one function: those before it that its counterpart needs, then itself. Empty: it has no counterpart.
std::vector<Json> convert(const std::string& name, const std::string& function, Call call, const Sizes& sizes) {
  if (function == "reshape") {  // [batch, ...] keeps the batch
    auto& shape = call.named["shape"];
    if (shape.is_array() && !shape.empty() && sizes.is_batch(shape[0])) {
      shape.erase(shape.begin());
      if (holds_tensor(shape)) return {};
      return {layer_json(name, kReshapeLayer, json_object({{"target_shape", shape}}),
                         Json::array({with_new_tensors(call.first, 0)}))};
    }
  }
  auto steps = counterpart(function, call.first, call.named);
  std::vector<Json> layers;
  for (size_t i = 0; steps && i < steps->size(); ++i) {
    OperationCall& step = (*steps)[i];
    const bool last = i + 1 == steps->size();
    Json arguments = Json::array();
    for (const Json& one : step.arguments) {
      Json argument = one;
      if (one.is_object() && one.contains(kStep))  // the result of an earlier step
        argument = Json::array({name + "_" + one[kStep].dump(), 0, 0});
      arguments.push_back(with_new_tensors(argument, step.rank));
    }
    layers.push_back(
        layer_json(last ? name : name + "_" + std::to_string(i), step.target, step.config, std::move(arguments)));
  }
  return layers;
}

bool is_recurrent(const std::string& name) {
  constexpr std::string_view kNames[] = {"RNN",           "SimpleRNN",  "LSTM",       "GRU",
                                         "Bidirectional", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

void collect_names(const Json& value, std::set<std::string>& names) {  // NOLINT(misc-no-recursion)
  if (is_old_tensor(value)) names.insert(value[0].get<std::string>());
  if (value.is_structured())
    for (const Json& one : value) collect_names(one, names);
}

// Removes layers that compute sizes and that nothing reads any more.
void remove_unread(Json& layers, const Json& config, const Sizes& sizes) {
  for (bool progress = true; progress;) {
    std::set<std::string> read;
    for (const Json& layer : layers)
      if (const Json* nodes = find(layer, "inbound_nodes")) collect_names(*nodes, read);
    if (const Json* outputs = find(config, "output_layers")) collect_names(*outputs, read);
    const auto unread = [&](const Json& layer) {
      const std::string name = text(layer, "name");
      return is_function(layer) && sizes.knows(name) && read.count(name) == 0;
    };
    const size_t before = layers.size();
    Json kept = Json::array();
    for (Json& layer : layers)
      if (!unread(layer)) kept.push_back(std::move(layer));
    progress = kept.size() < before;
    layers = std::move(kept);
  }
}

}  // namespace

bool is_old_tensor(const Json& value) {
  return is_argument(value) && value[1].get<int64_t>() >= 0 && value[2].is_number_integer() &&
         (value.size() == 3 || value[3].is_object());
}

void upgrade_named_tensors(Json& config) {
  const auto layers = config.find("layers");
  if (layers == config.end() || !layers->is_array()) return;
  for (Json& layer : *layers) {
    if (!layer.is_object() || is_function(layer)) continue;
    const auto nodes = layer.find("inbound_nodes");
    if (nodes == layer.end() || !nodes->is_array()) continue;
    for (Json& node : *nodes) {
      if (!node.is_array()) continue;
      const auto call = read_call(node);
      bool named = call && std::any_of(call->named.begin(), call->named.end(),
                                       [](const auto& entry) { return holds_tensor(entry.second); });
      if (!call || call->first.empty()) continue;
      const bool list = call->first[0].is_array();
      Json first = call->first.size() == 1 && list ? Json(call->first[0]) : call->first;
      Json others = Json::object();
      for (const auto& [key, value] : call->named) others[key] = with_new_tensors(value, 0);
      // Keras 2 gives a recurrent layer its sequences and its first state in one list.
      if (list && call->first.size() > 1 && is_recurrent(text(layer, "class_name"))) {
        Json states = Json::array();
        for (size_t i = 1; i < call->first.size(); ++i) states.push_back(with_new_tensors(call->first[i], 0));
        first = Json(call->first[0]);
        others["initial_state"] = std::move(states);
        named = true;
      }
      if (!named) continue;
      node = json_object({{"args", Json::array({with_new_tensors(first, 0)})}, {"kwargs", std::move(others)}});
    }
  }
}

void upgrade_functions(Json& config) {
  const auto layers = config.find("layers");
  if (layers == config.end() || !layers->is_array()) return;
  if (std::none_of(layers->begin(), layers->end(), [](const Json& layer) { return is_function(layer); })) return;
  Sizes sizes;
  Json made = Json::array();
  for (Json& layer : *layers) {
    const Json* nodes = find(layer, "inbound_nodes");
    const bool one_call = is_function(layer) && nodes != nullptr && nodes->is_array() && nodes->size() == 1;
    const auto call = one_call ? read_call(nodes->front()) : std::nullopt;
    std::vector<Json> replaced;
    if (call) {
      const std::string name = text(layer, "name"), function = text(layer["config"], "function");
      if (!sizes.note(name, function, *call)) replaced = convert(name, function, *call, sizes);
    }
    if (replaced.empty()) replaced.push_back(std::move(layer));
    for (Json& one : replaced) made.push_back(std::move(one));
  }
  *layers = std::move(made);
  remove_unread(*layers, config, sizes);
}

}  // namespace plimsoll::engine
