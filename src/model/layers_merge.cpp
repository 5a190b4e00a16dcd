// Layers with several inputs: Add, Subtract, Multiply, Average, Maximum, Minimum, Concatenate.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "model/layer.h"
#include "ops/build.h"

namespace plimsoll::engine {
namespace {

constexpr size_t kAnyNumber = std::numeric_limits<size_t>::max();

// Keras inserts dimensions of 1 after the batch into inputs of lower rank, then broadcasts.
Shape padded_rank(const Shape& sample, size_t rank) {
  std::vector<int64_t> dims(rank - sample.rank(), 1);
  dims.insert(dims.end(), sample.dims.begin(), sample.dims.end());
  return Shape(std::move(dims));
}

Result<Shape> broadcast_all(std::span<const Shape> in, const std::string& where) {
  size_t rank = 0;
  for (const Shape& s : in) rank = std::max(rank, s.rank());
  std::vector<int64_t> dims(rank, 1);
  for (const Shape& s : in) {
    const Shape padded = padded_rank(s, rank);
    for (size_t d = 0; d < rank; ++d) {
      if (padded[d] == 1 || padded[d] == dims[d]) continue;
      if (dims[d] != 1)
        return fail(ErrorCode::kBadGeometry, fmt::format("{}: [{}] does not match the inputs before it, [{}]", where,
                                                         to_text(s), fmt::join(dims, ",")));
      dims[d] = padded[d];
    }
  }
  return checked_shape(std::move(dims), where);
}

// Broadcasts a mask [N,...] over the channels of a tensor [N,...,C].
ValueId beside(const BuildCall& call, ValueId mask, ValueId tensor) {
  const std::vector<int64_t> dims = call.shape(tensor).dims;
  std::vector<int64_t> column = dims;
  column.back() = 1;
  if (call.b.graph().type(mask).dtype != call.precision)
    mask = call.add("cast", {mask}, {{"dtype", std::string(name_of(call.precision))}});
  return call.add("broadcast", {call.add("reshape", {mask}, {{"shape", column}})}, {{"shape", dims}});
}

ValueId inverted(const BuildCall& call, ValueId mask) {
  return call.add("affine", {mask}, {{"scale", -1.0}, {"offset", 1.0}});
}

// Returns a mask that is 1 where any input's mask is 1; kNone if an input has no mask.
ValueId merged_mask(const BuildCall& call) {
  if (std::find(call.masks.begin(), call.masks.end(), kNone) != call.masks.end()) return kNone;
  ValueId none = kNone;  // 1 where all masks are 0
  for (ValueId mask : call.masks) {
    const ValueId other = inverted(call, mask);
    none = none == kNone ? other : call.add("multiply", {none, other});
  }
  return inverted(call, none);
}

// Keras's Multiply reads masked values as 1, and returns 0 where every input is masked.
ValueId multiply_masked(const BuildCall& call, ValueId mask) {
  ValueId product = kNone;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    ValueId x = call.inputs[i];
    if (call.masks[i] != kNone) {
      const ValueId counts = beside(call, call.masks[i], x);
      x = call.add("add", {call.add("multiply", {x, counts}), inverted(call, counts)});
    }
    product = product == kNone ? x : call.add("multiply", {product, x});
  }
  return mask == kNone ? product : call.add("multiply", {product, beside(call, mask, product)});
}

// Keras's Maximum and Minimum read a masked value as that of the other operand.
ValueId extreme_masked(const BuildCall& call, const std::string& op) {
  ValueId result = call.inputs[0];
  ValueId counts = call.masks[0] == kNone ? kNone : beside(call, call.masks[0], result);
  for (size_t i = 1; i < call.inputs.size(); ++i) {
    ValueId x = call.inputs[i];
    const ValueId own = call.masks[i] == kNone ? kNone : beside(call, call.masks[i], x);
    if (own != kNone) x = call.add("select", {own, x, result});
    if (counts != kNone) result = call.add("select", {counts, result, x});
    counts = own != kNone && counts != kNone ? call.add("maximum", {counts, own}) : kNone;
    result = call.add(op, {result, x});
  }
  return result;
}

ValueId broadcast_input(const BuildCall& call, ValueId x, const std::vector<int64_t>& whole) {
  if (call.shape(x).rank() != whole.size()) {
    std::vector<int64_t> dims = call.shape(x).dims;
    dims.insert(dims.begin() + 1, whole.size() - dims.size(), 1);
    x = call.add("reshape", {x}, {{"shape", dims}});
  }
  return broadcast_to(call.b, x, Shape(whole));
}

Layer elementwise(Config& c, const std::string& op, bool averages = false) {
  const std::string& where = c.where();
  Layer layer;
  layer.masking = Masking::kMerges;
  layer.most_inputs = kAnyNumber;
  if (op == "subtract") layer.least_inputs = layer.most_inputs = 2;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> { return broadcast_all(in, where); };
  layer.build = [=](const BuildCall& call) -> LayerValues {
    const ValueId mask = merged_mask(call);
    const bool masked = std::any_of(call.masks.begin(), call.masks.end(), [](ValueId m) { return m != kNone; });
    if (masked && op == "multiply") return {multiply_masked(call, mask), mask};
    if (masked && (op == "maximum" || op == "minimum")) return {extreme_masked(call, op), mask};
    const std::vector<int64_t> whole = call.output_dims();
    ValueId sum = kNone;
    for (ValueId x : call.inputs) {
      x = broadcast_input(call, x, whole);
      sum = sum == kNone ? x : call.add(op, {sum, x});
    }
    if (averages)
      sum = call.add("affine", {sum}, {{"scale", 1.0 / static_cast<double>(call.inputs.size())}, {"offset", 0.0}});
    return {sum, mask};
  };
  return layer;
}

// The mask of a concatenation: an input without a mask counts everywhere. Along the channels, a row counts if it counts
// in any input.
ValueId joined_mask(const BuildCall& call, int64_t axis) {
  std::vector<ValueId> masks;
  for (ValueId mask : call.masks)
    if (mask != kNone) masks.push_back(mask);
  if (masks.empty()) return kNone;
  if (axis + 1 == static_cast<int64_t>(call.shape(call.in()).rank())) {
    if (masks.size() < call.masks.size()) return constant_like(call.b, masks[0], 1);
    ValueId any = masks[0];
    for (size_t i = 1; i < masks.size(); ++i) any = call.add("maximum", {any, masks[i]});
    return any;
  }
  const DType dtype = call.b.graph().type(masks[0]).dtype;
  std::vector<ValueId> parts;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    std::vector<int64_t> rows = call.shape(call.inputs[i]).dims;
    rows.pop_back();
    parts.push_back(
        call.masks[i] != kNone
            ? call.masks[i]
            : call.add("fill", {}, {{"shape", rows}, {"value", 1.0}, {"dtype", std::string(name_of(dtype))}}));
  }
  return call.add("concat", std::move(parts), {{"axis", axis}});
}

Layer concatenate(Config& c) {
  const int64_t axis = c.integer("axis", -64, 64, -1);
  const std::string where = c.where();
  Layer layer;
  layer.masking = Masking::kJoins;
  layer.most_inputs = kAnyNumber;
  layer.shape = [=](std::span<const Shape> in, Issues& issues) -> Result<LayerShape> {
    const auto at = positive_axis(axis, in[0].rank() + 1);
    if (!at)
      return fail(ErrorCode::kBadGeometry,
                  fmt::format("{}: axis {} is outside [batch,{}]", where, axis, to_text(in[0])));
    if (*at == 0) {
      issues.unknown(fmt::format("{}: axis=0, the batch", where));
      return LayerShape(in[0]);
    }
    std::vector<int64_t> dims = in[0].dims;
    const auto d = static_cast<size_t>(*at - 1);
    for (const Shape& s : in.subspan(1)) {
      Shape aligned = s;
      if (s.rank() == in[0].rank()) aligned.dims[d] = in[0][d];
      if (aligned != in[0])
        return fail(ErrorCode::kBadGeometry, fmt::format("{}: [{}] and [{}] differ in more than axis {}", where,
                                                         to_text(in[0]), to_text(s), axis));
      dims[d] += s[d];
    }
    return checked_shape(std::move(dims), where);
  };
  layer.build = [=](const BuildCall& call) -> LayerValues {
    if (call.inputs.size() == 1) return {call.in(), call.masks[0]};
    const auto at = positive_axis(axis, call.shape(call.in()).rank());
    return {call.add("concat", {call.inputs.begin(), call.inputs.end()}, {{"axis", *at}}), joined_mask(call, *at)};
  };
  return layer;
}

constexpr std::array kLayers = {
    LayerClass{"Add", [](Config& c) { return elementwise(c, "add"); }},
    LayerClass{"Subtract", [](Config& c) { return elementwise(c, "subtract"); }},
    LayerClass{"Multiply", [](Config& c) { return elementwise(c, "multiply"); }},
    LayerClass{"Average", [](Config& c) { return elementwise(c, "add", true); }},
    LayerClass{"Maximum", [](Config& c) { return elementwise(c, "maximum"); }},
    LayerClass{"Minimum", [](Config& c) { return elementwise(c, "minimum"); }},
    LayerClass{"Concatenate", concatenate},
};

}  // namespace

std::span<const LayerClass> merge_layers() {
  return kLayers;
}

}  // namespace plimsoll::engine
