#include "model/arguments.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/build.h"

namespace plimsoll::engine {
namespace {

constexpr auto kMostElementsOfConstant = static_cast<size_t>(kMostConstants);

constexpr const char* kTensor = "tensor";

bool holds_tensor(const CallArguments& call, const Json& value) {
  if (tensor_index(call, value)) return true;
  if (!value.is_structured()) return false;
  for (const Json& one : value)
    if (holds_tensor(call, one)) return true;
  return false;
}

std::string shown_argument(const CallArguments& call, const Json& value) {
  if (tensor_index(call, value)) return "a tensor";
  return holds_tensor(call, value) ? "a structure of tensors" : shown(value);
}

// None, or a structure of it: the masks of a model that is called with a map of tensors.
bool is_nothing(const Json& value) {  // NOLINT(misc-no-recursion): the depth of JSON is limited
  return value.is_null() || (value.is_structured() && !value.empty() &&
                             std::all_of(value.begin(), value.end(), [](const Json& one) { return is_nothing(one); }));
}

// Keras replaces a recorded `training` by that of the running call.
bool is_replaced(const std::string& name, const Json& value) {
  return value.is_null() || (name == "training" && value.is_boolean()) || (name == "mask" && is_nothing(value));
}

// Collects what an argument holds beside tensors.
void collect_extra(const CallArguments& call, const Json& value, const std::string& what,
                   std::vector<std::string>& extra) {
  if (value.is_null() || tensor_index(call, value)) return;
  if (value.is_array() || (value.is_object() && !is_keras_object(value))) {
    for (const Json& one : value) collect_extra(call, one, what, extra);
    return;
  }
  extra.push_back(fmt::format("{}={}", what, shown(value)));
}

// Appends the elements of a nested list in row-major order. All lists of a level must have the same length.
bool flatten(const Json& value, size_t depth, Constant& out, bool& whole, bool& truth) {
  constexpr size_t kDeepest = 16;
  if (!value.is_array()) {
    if (depth != out.shape.rank()) return false;
    if (value.is_boolean()) {
      out.values.push_back(value.get<bool>() ? 1 : 0);
      return true;
    }
    truth = false;
    if (const auto n = as_integer(value)) {
      // Integers are computed with as float32, or float64, so they must be exact there.
      constexpr int64_t kExact = int64_t{1} << 24;
      if (*n > kExact || *n < -kExact) return false;
      out.values.push_back(static_cast<double>(*n));
      return true;
    }
    whole = false;
    if (!value.is_number()) return false;
    out.values.push_back(value.get<double>());
    return out.values.size() <= kMostElementsOfConstant;
  }
  if (depth >= kDeepest || value.empty() || value.size() > kMostElementsOfConstant) return false;
  // The first element of each level sets its length.
  if (out.values.empty() && depth == out.shape.rank()) out.shape.dims.push_back(static_cast<int64_t>(value.size()));
  if (depth >= out.shape.rank() || out.shape[depth] != static_cast<int64_t>(value.size())) return false;
  for (const Json& one : value)
    if (!flatten(one, depth + 1, out, whole, truth) || out.values.size() > kMostElementsOfConstant) return false;
  return true;
}

}  // namespace

Json tensor_placeholder(size_t index) {
  Json made = Json::object();
  made[kTensor] = index;
  return made;
}

std::optional<size_t> tensor_index(const CallArguments& call, const Json& argument) {
  const Json* index = argument.is_object() && argument.size() == 1 ? member(argument, kTensor) : nullptr;
  const auto n = index ? as_integer(*index) : std::nullopt;
  // A file may hold anything, also what looks like a placeholder.
  if (!n || *n < 0 || static_cast<size_t>(*n) >= call.tensors.size()) return std::nullopt;
  return static_cast<size_t>(*n);
}

std::optional<Constant> read_constant(const Json& argument) {
  Constant constant;
  const std::string name = text_member(argument, "class_name");
  const Json* value = &argument;
  std::string dtype;
  if (name == "__numpy__" || name == "__tensor__") {
    const Json* config = member(argument, "config");
    value = config ? member(*config, "value") : nullptr;
    if (!value) return std::nullopt;
    dtype = text_member(*config, "dtype");
  } else if (argument.is_object() || argument.is_null() || argument.is_string()) {
    return std::nullopt;
  }
  bool whole = true, truth = true;
  if (!flatten(*value, 0, constant, whole, truth)) return std::nullopt;
  if (truth)
    constant.type = Constant::Type::kTruth;
  else if (whole)
    constant.type = Constant::Type::kInteger;
  constant.weak = constant.shape.rank() == 0 && dtype.empty();
  if (dtype.starts_with("float") || dtype.starts_with("bfloat"))
    constant.type = Constant::Type::kFloat;
  else if (dtype == "bool")
    constant.type = Constant::Type::kTruth;
  else if (!dtype.empty() && constant.type == Constant::Type::kFloat)
    return std::nullopt;
  return constant;
}

std::optional<Slice> read_slice(const Json& argument) {
  if (text_member(argument, "class_name") != "__slice__") return std::nullopt;
  const Json* config = member(argument, "config");
  if (!config) return std::nullopt;
  Slice slice;
  bool good = true;
  for (const auto& [key, bound] :
       {std::pair{"start", &slice.start}, std::pair{"stop", &slice.stop}, std::pair{"step", &slice.step}}) {
    const Json* value = member(*config, key);
    if (!value || value->is_null()) continue;
    *bound = as_integer(*value);
    good = good && *bound;
  }
  return good ? std::optional(slice) : std::nullopt;
}

bool is_ellipsis(const Json& argument) {
  return text_member(argument, "class_name") == "__ellipsis__";
}

std::vector<std::string> extra_arguments(const CallArguments& call) {
  std::vector<std::string> extra;
  for (size_t i = 0; i < call.positional.size(); ++i) {
    const std::string what = fmt::format("argument {}", i);
    collect_extra(call, call.positional[i], what, extra);
    if (i > 0 && holds_tensor(call, call.positional[i])) extra.push_back(what + "=a tensor");
  }
  for (const auto& [name, value] : call.named.items()) {
    if (is_replaced(name, value)) continue;
    if (name == "inputs" || name == "x")
      collect_extra(call, value, name, extra);
    else
      extra.push_back(fmt::format("{}={}", name, shown_argument(call, value)));
  }
  return extra;
}

const Json* Arguments::value(const std::string& name, size_t position) {
  positions_.insert(position);
  names_.insert(name);
  const Json* found = position < call_->positional.size() ? &call_->positional[position] : member(call_->named, name);
  return found && !found->is_null() ? found : nullptr;
}

std::string Arguments::shown(const Json& argument) const {
  return shown_argument(*call_, argument);
}

void Arguments::finish() {
  for (size_t i = 0; i < call_->positional.size(); ++i)
    if (!positions_.count(i) && !call_->positional[i].is_null())
      issues_->unknown(
          fmt::format("{}: called with argument {}={}", where_, i, shown_argument(*call_, call_->positional[i])));
  for (const auto& [name, value] : call_->named.items())
    if (!names_.count(name) && !is_replaced(name, value))
      issues_->unknown(fmt::format("{}: called with {}={}", where_, name, shown_argument(*call_, value)));
}

}  // namespace plimsoll::engine
