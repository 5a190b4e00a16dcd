#include "ops/build.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "ops/op.h"

namespace plimsoll::engine {
namespace {

Result<std::vector<TensorType>> infer(const std::string& op, std::span<const TensorType> inputs, const Attrs& attrs) {
  const OpDef* def = find_op(op);
  if (!def) return fail(ErrorCode::kInternal, fmt::format("there is no op '{}'", op));
  return def->infer(inputs, attrs);
}

}  // namespace

GraphBuilder make_builder(Graph graph) {
  return GraphBuilder(std::move(graph), infer);
}

std::optional<Shape> broadcast_shapes(const Shape& a, const Shape& b) {
  const Shape &longer = a.rank() >= b.rank() ? a : b, &shorter = a.rank() >= b.rank() ? b : a;
  Shape shape = longer;
  const size_t shift = longer.rank() - shorter.rank();
  for (size_t i = 0; i < shorter.rank(); ++i) {
    int64_t& size = shape.dims[i + shift];
    if (size != shorter[i] && size != 1 && shorter[i] != 1) return std::nullopt;
    if (size == 1) size = shorter[i];
  }
  return shape;
}

ValueId broadcast_to(GraphBuilder& b, ValueId x, const Shape& shape) {
  return b.graph().type(x).shape == shape ? x : b.add1("broadcast", {x}, {{"shape", shape.dims}});
}

ValueId add_broadcast(GraphBuilder& b, const std::string& op, ValueId x, ValueId y) {
  const auto shape = broadcast_shapes(b.graph().type(x).shape, b.graph().type(y).shape);
  if (!shape) return b.add1(op, {x, y});  // the op's shape rule reports the two shapes
  const ValueId left = broadcast_to(b, x, *shape), right = broadcast_to(b, y, *shape);
  return b.add1(op, {left, right});
}

ValueId constant_like(GraphBuilder& b, ValueId x, double value) {
  return b.add1("full_like", {x}, {{"value", value}});
}

Attrs constant_attrs(const Shape& shape, DType dtype, std::span<const double> values) {
  return {{"shape", shape.dims},
          {"dtype", std::string(name_of(dtype))},
          {"values", fmt::format("{}", fmt::join(values, " "))}};
}

std::optional<std::vector<double>> constant_values(const Attrs& attrs) {
  const std::string& text = attrs.text("values");
  std::vector<double> values;
  const char *at = text.data(), *const end = at + text.size();
  while (at != end) {
    double value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc() || (next != end && *next != ' ')) return std::nullopt;
    values.push_back(value);
    at = next == end ? end : next + 1;
  }
  return values;
}

}  // namespace plimsoll::engine
