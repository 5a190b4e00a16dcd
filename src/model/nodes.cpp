#include "model/nodes.h"

namespace plimsoll::engine {
namespace {

std::optional<NamedTensor> read_history(const Json& list) {
  if (!list.is_array() || list.size() < 3 || !list[0].is_string()) return std::nullopt;
  const auto node = as_integer(list[1]), tensor = as_integer(list[2]);
  if (!node || !tensor || *node < 0 || *tensor < 0) return std::nullopt;
  return NamedTensor{list[0].get<std::string>(), *node, *tensor};
}

// Returns what the file says of a tensor's shape and dtype. Unreadable dimensions count as unknown.
FileTensor read_type(const Json& config) {
  FileTensor type;
  if (const Json* shape = member(config, "shape"); shape && shape->is_array())
    for (const Json& d : *shape) type.dims.push_back(as_integer(d));
  type.dtype = text_member(config, "dtype");
  return type;
}

// Copies an argument, and replaces its tensors by placeholders. Returns false if a tensor has no readable history.
bool collect(const Json& value, int depth, NodeArguments& out, Json& copy) {
  constexpr int kDeepest = 16;
  if (depth > kDeepest) return false;
  if (text_member(value, "class_name") == "__keras_tensor__") {
    const Json* config = member(value, "config");
    const Json* history = config ? member(*config, "keras_history") : nullptr;
    const auto tensor = history ? read_history(*history) : std::nullopt;
    if (!tensor) return false;
    copy = tensor_placeholder(out.tensors.size());
    out.tensors.push_back(*tensor);
    out.call.tensors.push_back(read_type(*config));
    return true;
  }
  if (!value.is_array() && (!value.is_object() || is_keras_object(value))) {
    copy = value;
    return true;
  }
  copy = value.is_array() ? Json::array() : Json::object();
  for (const auto& [key, one] : value.items()) {
    Json inner;
    if (!collect(one, depth + 1, out, inner)) return false;
    if (value.is_array())
      copy.push_back(std::move(inner));
    else
      copy[key] = std::move(inner);
  }
  return true;
}

// Reads `mask`: a tensor, or a list of tensors and None. Returns false if it is something else.
bool read_masks(const Json& value, NodeArguments& out) {
  NodeArguments masks;
  Json copy;
  if (!collect(value.is_array() ? value : Json::array({value}), 0, masks, copy)) return false;
  for (const Json& one : copy) {
    const auto tensor = tensor_index(masks.call, one);
    if (!tensor && !one.is_null()) return false;
    out.masks.push_back(tensor ? std::optional(masks.tensors[*tensor]) : std::nullopt);
  }
  return true;
}

bool collect_named(const Json& kwargs, bool masks_apart, NodeArguments& out) {
  if (kwargs.is_null()) return true;
  if (!kwargs.is_object()) return false;
  Json others = kwargs;
  if (const Json* mask = member(kwargs, "mask"); masks_apart && mask) {
    NodeArguments apart;
    if (read_masks(*mask, apart)) {
      out.masks = std::move(apart.masks);
      others.erase("mask");
    }
  }
  return collect(others, 0, out, out.call.named);
}

// The older form has one list per tensor, [layer, node, tensor, kwargs], and the same kwargs in each.
std::optional<NodeArguments> read_old_node(const Json& list, bool masks_apart) {
  NodeArguments arguments;
  bool good = !list.empty();
  Json first = Json::array();
  for (const Json& one : list) {
    const auto tensor = read_history(one);
    if (!tensor || one.size() > 4) return std::nullopt;
    first.push_back(tensor_placeholder(arguments.tensors.size()));
    arguments.tensors.push_back(*tensor);
    arguments.call.tensors.emplace_back();
  }
  for (const Json& one : list)
    if (one.size() == 4) good = good && collect_named(one[3], masks_apart, arguments);
  // One tensor is the argument itself, several are a list.
  arguments.call.positional.push_back(first.size() == 1 ? Json(first[0]) : std::move(first));
  return good ? std::optional(arguments) : std::nullopt;
}

}  // namespace

std::optional<NodeArguments> read_node(const Json& node, bool masks_apart) {
  if (node.is_array()) return read_old_node(node, masks_apart);
  const Json* args = member(node, "args");
  if (!args || !args->is_array()) return std::nullopt;
  NodeArguments arguments;
  bool good = collect(*args, 0, arguments, arguments.call.positional);
  if (const Json* kwargs = member(node, "kwargs")) good = good && collect_named(*kwargs, masks_apart, arguments);
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
