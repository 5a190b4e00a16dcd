#include "model/constraint.h"

#include <fmt/format.h>

#include "model/config.h"

namespace plimsoll::engine {
namespace {

constexpr double kEpsilon = 1e-7;  // keras.config.epsilon()

struct ConstraintName {
  std::string_view class_name, function;
  Constraint::Kind kind;
};
constexpr ConstraintName kNames[] = {{"NonNeg", "non_neg", Constraint::Kind::kNonNegative},
                                     {"MaxNorm", "max_norm", Constraint::Kind::kMaxNorm},
                                     {"UnitNorm", "unit_norm", Constraint::Kind::kUnitNorm},
                                     {"MinMaxNorm", "min_max_norm", Constraint::Kind::kMinMaxNorm}};

// `axis` is an integer or a list of integers.
std::vector<int64_t> read_axes(Config& c) {
  const Json* value = c.value("axis");
  if (!value) return {0};
  std::vector<int64_t> axes;
  const Json list = value->is_array() ? *value : Json::array({*value});
  for (const Json& one : list) {
    const auto axis = as_integer(one);
    if (!axis) {
      c.issues().reject(fmt::format("{}: 'axis' must be integers, got {}", c.where(), shown(*value)));
      return {0};
    }
    axes.push_back(*axis);
  }
  return axes;
}

std::vector<int64_t> positive(const std::vector<int64_t>& axes, size_t rank) {
  std::vector<int64_t> list;
  for (const int64_t axis : axes) list.push_back(axis < 0 ? axis + static_cast<int64_t>(rank) : axis);
  return list;
}

}  // namespace

std::optional<Constraint> read_constraint(Config& config, const std::string& key) {
  const Json* value = config.value(key);
  if (!value) return std::nullopt;
  const KerasObject object = keras_object(*value);
  for (const ConstraintName& name : kNames) {
    if (object.custom || (object.name != name.class_name && object.name != name.function)) continue;
    Config c(object.config, fmt::format("{}: {} {}", config.where(), key, object.name), config.issues());
    Constraint constraint;
    constraint.kind = name.kind;
    if (name.kind == Constraint::Kind::kMaxNorm) constraint.most = c.real("max_value", 2);
    if (name.kind == Constraint::Kind::kMinMaxNorm) {
      constraint.least = c.real("min_value", 0);
      constraint.most = c.real("max_value", 1);
      constraint.rate = c.real("rate", 1);
    }
    if (name.kind != Constraint::Kind::kNonNegative) constraint.axes = read_axes(c);
    c.finish();
    return constraint;
  }
  config.issues().unknown(fmt::format("{}: {}={}", config.where(), key, shown(*value)));
  if (object.custom) config.issues().custom_code();
  return std::nullopt;
}

std::string check_constraint(const Constraint& constraint, const Shape& shape) {
  for (const int64_t axis : positive(constraint.axes, shape.rank()))
    if (axis < 0 || axis >= static_cast<int64_t>(shape.rank()))
      return fmt::format("a constraint with an axis outside of its shape [{}]", to_text(shape));
  return "";
}

Expression constrained(const Constraint& constraint, const Expression& w) {
  if (constraint.kind == Constraint::Kind::kNonNegative) return w.apply("relu");
  const Expression norms = call("sqrt", sum(call("square", w), positive(constraint.axes, w.shape().rank())));
  if (constraint.kind == Constraint::Kind::kUnitNorm) return w / (norms + kEpsilon);
  Expression desired = clip(norms, constraint.least, constraint.most);
  if (constraint.rate != 1) desired = desired * constraint.rate + norms * (1 - constraint.rate);
  return w * (desired / (norms + kEpsilon));
}

}  // namespace plimsoll::engine
