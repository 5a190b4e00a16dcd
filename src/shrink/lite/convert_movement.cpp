// Matrices, tables, sums over axes, and operations that only move values.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "shrink/lite/converter.h"

namespace plimsoll::engine::lite {
namespace {

std::vector<int32_t> narrow(const std::vector<int64_t>& list) {
  return {list.begin(), list.end()};
}

void matmul(Converter& c, const Node& node) {
  const ValueId a = node.inputs[0], b = node.inputs[1], y = node.outputs[0];
  if (!c.is_constant(b) || node.attrs.flag("transpose_a")) return c.refuse("a product of two computed matrices");
  const Shape k = c.shape(b);
  const bool transposed = node.attrs.flag("transpose_b");
  std::vector<float> weights = c.floats(b);
  const auto rows = static_cast<size_t>(k[0]), columns = static_cast<size_t>(k[1]);
  if (!transposed) {
    std::vector<float> turned(weights.size());
    for (size_t i = 0; i < rows; ++i)
      for (size_t j = 0; j < columns; ++j) turned[j * rows + i] = weights[i * columns + j];
    weights = std::move(turned);
  }
  const auto units = static_cast<int32_t>(transposed ? rows : columns),
             inner = static_cast<int32_t>(transposed ? columns : rows);
  const int32_t bias = c.add_constant(
      {units}, node.inputs.size() > 2 ? c.floats(node.inputs[2]) : std::vector<float>(static_cast<size_t>(units)),
      "bias");
  const int32_t kernel = c.add_constant({units, inner}, std::move(weights), "kernel");
  c.set(y, c.add(Op::kFullyConnected, {c.tensor(a), kernel, bias}, dims_of(c.shape(y))));
}

void batch_matmul(Converter& c, const Node& node) {
  Options options;
  options.adjoint_x = node.attrs.flag("transpose_a");
  options.adjoint_y = node.attrs.flag("transpose_b");
  const int32_t a = c.tensor(node.inputs[0]), b = c.tensor(node.inputs[1]);
  c.set(node.outputs[0], c.add(Op::kBatchMatmul, {a, b}, dims_of(c.shape(node.outputs[0])), options));
}

void reshape(Converter& c, const Node& node) {
  c.set(node.outputs[0], c.reshape(c.tensor(node.inputs[0]), dims_of(c.shape(node.outputs[0]))));
}

void transpose(Converter& c, const Node& node) {
  const int32_t perm = c.add_integers(narrow(node.attrs.list("perm")), "perm");
  c.set(node.outputs[0], c.add(Op::kTranspose, {c.tensor(node.inputs[0]), perm}, dims_of(c.shape(node.outputs[0]))));
}

void concat(Converter& c, const Node& node) {
  Options options;
  options.axis = static_cast<int32_t>(node.attrs.integer("axis"));
  std::vector<int32_t> parts;
  for (const ValueId id : node.inputs) parts.push_back(c.tensor(id));
  c.set(node.outputs[0], c.add(Op::kConcat, std::move(parts), dims_of(c.shape(node.outputs[0])), options));
}

void take(Converter& c, const Node& node, const std::vector<int32_t>& begin) {
  const auto size = dims_of(c.shape(node.outputs[0]));
  const int32_t first = c.add_integers(begin, "begin"), sizes = c.add_integers(size, "size");
  c.set(node.outputs[0], c.add(Op::kSlice, {c.tensor(node.inputs[0]), first, sizes}, size));
}

void slice(Converter& c, const Node& node) {
  std::vector<int32_t> begin(c.shape(node.inputs[0]).rank());
  begin[static_cast<size_t>(node.attrs.integer("axis"))] = static_cast<int32_t>(node.attrs.integer("begin"));
  take(c, node, begin);
}

void strided_slice(Converter& c, const Node& node) {
  const auto& strides = node.attrs.list("strides");
  if (std::any_of(strides.begin(), strides.end(), [](int64_t s) { return s != 1; }))
    return c.refuse("a slice with steps");
  take(c, node, narrow(node.attrs.list("begin")));
}

void crop(Converter& c, const Node& node) {
  const auto& pads = node.attrs.list("pads");
  take(c, node, {0, static_cast<int32_t>(pads[0]), static_cast<int32_t>(pads[2]), 0});
}

void gather_as(Converter& c, ValueId table, ValueId ids, ValueId y, int64_t axis) {
  Options options;
  options.axis = static_cast<int32_t>(axis);
  c.set(y, c.add(Op::kGather, {c.tensor(table), c.tensor(ids)}, dims_of(c.shape(y)), options));
}

void embedding(Converter& c, const Node& node) {
  gather_as(c, node.inputs[0], node.inputs[1], node.outputs[0], 0);
}

void gather(Converter& c, const Node& node) {
  gather_as(c, node.inputs[0], node.inputs[1], node.outputs[0], node.attrs.integer("axis"));
}

void reduce_max(Converter& c, const Node& node) {
  Options keep;
  keep.keep_dims = true;
  const int32_t axes = c.add_integers(narrow(node.attrs.list("axes")), "axes");
  c.set(node.outputs[0],
        c.add(Op::kReduceMax, {c.tensor(node.inputs[0]), axes}, dims_of(c.shape(node.outputs[0])), keep));
}

// The sum over the dimensions that a broadcast to the input's shape would repeat.
void reduce_to(Converter& c, const Node& node) {
  const Shape &from = c.shape(node.inputs[0]), &to = c.shape(node.outputs[0]);
  std::vector<int32_t> axes;
  auto kept = dims_of(from);
  const size_t missing = from.rank() - to.rank();
  for (size_t d = 0; d < from.rank(); ++d) {
    if (d >= missing && to[d - missing] == from[d]) continue;
    axes.push_back(static_cast<int32_t>(d));
    kept[d] = 1;
  }
  int32_t x = c.tensor(node.inputs[0]);
  Options keep;
  keep.keep_dims = true;
  if (!axes.empty()) x = c.add(Op::kSum, {x, c.add_integers(axes, "axes")}, kept, keep);
  c.set(node.outputs[0], c.reshape(x, dims_of(to)));
}

constexpr std::array kConversions = {
    NodeConversion{"matmul", matmul},
    NodeConversion{"batch_matmul", batch_matmul},
    NodeConversion{"reshape", reshape},
    NodeConversion{"transpose", transpose},
    NodeConversion{"concat", concat},
    NodeConversion{"slice", slice},
    NodeConversion{"strided_slice", strided_slice},
    NodeConversion{"crop2d", crop},
    NodeConversion{"embedding", embedding},
    NodeConversion{"gather", gather},
    NodeConversion{"reduce_max", reduce_max},
    NodeConversion{"reduce_to", reduce_to},
};

}  // namespace

std::span<const NodeConversion> movement_conversions() {
  return kConversions;
}

}  // namespace plimsoll::engine::lite
