#include "model/nodes.h"

#include <fmt/format.h>

namespace plimsoll::engine {
namespace {

std::optional<NamedTensor> read_history(const Json& list) {
  if (!list.is_array() || list.size() < 3 || !list[0].is_string()) return std::nullopt;
  const auto node = as_integer(list[1]), tensor = as_integer(list[2]);
  if (!node || !tensor || *node < 0 || *tensor < 0) return std::nullopt;
  return NamedTensor{list[0].get<std::string>(), *node, *tensor};
}

// Collects the tensors in nested lists and maps, in Keras's order. Returns false if a tensor has no readable history.
bool collect(const Json& value, const std::string& what, int depth, NodeArguments& out) {
  constexpr int kDeepest = 16;
  if (depth > kDeepest) return false;
  if (value.is_null()) return true;
  if (text_member(value, "class_name") == "__keras_tensor__") {
    const Json* config = member(value, "config");
    const Json* history = config ? member(*config, "keras_history") : nullptr;
    const auto tensor = history ? read_history(*history) : std::nullopt;
    if (!tensor) return false;
    out.tensors.push_back(*tensor);
    return true;
  }
  if (value.is_array() || (value.is_object() && !is_keras_object(value))) {
    for (const Json& one : value)
      if (!collect(one, what, depth + 1, out)) return false;
    return true;
  }
  out.extra.push_back(fmt::format("{}={}", what, shown(value)));
  return true;
}

void collect_kwargs(const Json& kwargs, NodeArguments& out, bool& good) {
  if (!kwargs.is_object()) {
    good = good && kwargs.is_null();
    return;
  }
  for (const auto& [key, value] : kwargs.items()) {
    // Keras replaces a recorded `training` by that of the running call. A null mask means no mask.
    if (key == "training" && (value.is_boolean() || value.is_null())) continue;
    if (value.is_null()) continue;
    if (key == "inputs" || key == "x")
      good = good && collect(value, key, 0, out);
    else
      out.extra.push_back(fmt::format("{}={}", key, shown(value)));
  }
}

std::optional<NodeArguments> read_old_node(const Json& list) {
  NodeArguments arguments;
  bool good = !list.empty();
  for (const Json& one : list) {
    const auto tensor = read_history(one);
    if (!tensor || one.size() > 4) return std::nullopt;
    arguments.tensors.push_back(*tensor);
    if (one.size() == 4) collect_kwargs(one[3], arguments, good);
  }
  return good ? std::optional(arguments) : std::nullopt;
}

}  // namespace

std::optional<NodeArguments> read_node(const Json& node) {
  if (node.is_array()) return read_old_node(node);
  const Json* args = member(node, "args");
  if (!args || !args->is_array()) return std::nullopt;
  NodeArguments arguments;
  bool good = true;
  for (size_t i = 0; i < args->size(); ++i) {
    const size_t before = arguments.tensors.size();
    good = good && collect((*args)[i], fmt::format("argument {}", i), 0, arguments);
    if (i > 0 && arguments.tensors.size() > before) arguments.extra.push_back(fmt::format("argument {}=a tensor", i));
  }
  if (const Json* kwargs = member(node, "kwargs")) collect_kwargs(*kwargs, arguments, good);
  return good ? std::optional(arguments) : std::nullopt;
}

namespace {

bool collect_ports(const Json& value, const std::string& key, int depth, std::vector<NamedPort>& out) {
  constexpr int kDeepest = 16;
  if (depth > kDeepest) return false;
  if (value.is_array() && !value.empty() && value[0].is_string()) {
    const auto tensor = read_history(value);
    if (tensor) out.push_back({key, *tensor});
    return tensor.has_value();
  }
  if (!value.is_structured()) return false;
  for (const auto& [name, one] : value.items())
    if (!collect_ports(one, value.is_object() ? name : key, depth + 1, out)) return false;
  return true;
}

}  // namespace

std::optional<std::vector<NamedPort>> read_ports(const Json& ports) {
  std::vector<NamedPort> list;
  if (!collect_ports(ports, "", 0, list) || list.empty()) return std::nullopt;
  return list;
}

}  // namespace plimsoll::engine
