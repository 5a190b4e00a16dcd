// A GraphBuilder that infers shapes with the registered ops, and short ways to add nodes to it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/builder.h"

namespace plimsoll::engine {

GraphBuilder make_builder(Graph graph = {});

// The shape of a and b after NumPy's broadcasting; none if they do not match.
std::optional<Shape> broadcast_shapes(const Shape& a, const Shape& b);

// x repeated to `shape` (x itself if it has that shape). A shape that does not match is an error of the builder.
ValueId broadcast_to(GraphBuilder& b, ValueId x, const Shape& shape);

// An op of two inputs, with NumPy's broadcasting.
ValueId add_broadcast(GraphBuilder& b, const std::string& op, ValueId x, ValueId y);

// A tensor with the type of x and one value everywhere. It can be fused with its readers, and then costs no memory.
ValueId constant_like(GraphBuilder& b, ValueId x, double value);

// The attributes of op `constant`, and the numbers in them (none if the text is not a list of numbers).
inline constexpr int64_t kMostConstants = 65536;
Attrs constant_attrs(const Shape& shape, DType dtype, std::span<const double> values);
std::optional<std::vector<double>> constant_values(const Attrs& attrs);

}  // namespace plimsoll::engine
