// Layers with several inputs: Add, Multiply, Concatenate.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "model/layer.h"

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

Layer elementwise(Config& c, const std::string& op) {
  const std::string& where = c.where();
  Layer layer;
  layer.masking = Masking::kMerges;
  layer.most_inputs = kAnyNumber;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> { return broadcast_all(in, where); };
  layer.build = [=](const BuildCall& call) -> LayerValues {
    const ValueId mask = merged_mask(call);
    const bool masked = std::any_of(call.masks.begin(), call.masks.end(), [](ValueId m) { return m != kNone; });
    if (masked && op == "multiply") return {multiply_masked(call, mask), mask};
    const std::vector<int64_t> whole = call.output_dims();
    ValueId sum = kNone;
    for (ValueId x : call.inputs) {
      if (call.shape(x).rank() != whole.size()) {
        const Shape& s = call.shape(x);
        std::vector<int64_t> dims(s.dims.begin(), s.dims.end());
        dims.insert(dims.begin() + 1, whole.size() - dims.size(), 1);
        x = call.add("reshape", {x}, {{"shape", dims}});
      }
      if (call.shape(x).dims != whole) x = call.add("broadcast", {x}, {{"shape", whole}});
      sum = sum == kNone ? x : call.add(op, {sum, x});
    }
    return {sum, mask};
  };
  return layer;
}

Layer concatenate(Config& c) {
  const int64_t axis = c.integer("axis", -64, 64, -1);
  const std::string where = c.where();
  Layer layer;
  layer.masking = Masking::kChanges;
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
  layer.build = [=](const BuildCall& call) {
    if (call.inputs.size() == 1) return call.in();
    const auto at = positive_axis(axis, call.shape(call.in()).rank());
    return call.add("concat", {call.inputs.begin(), call.inputs.end()}, {{"axis", *at}});
  };
  return layer;
}

constexpr std::array kLayers = {
    LayerClass{"Add", [](Config& c) { return elementwise(c, "add"); }},
    LayerClass{"Multiply", [](Config& c) { return elementwise(c, "multiply"); }},
    LayerClass{"Concatenate", concatenate},
};

}  // namespace

std::span<const LayerClass> merge_layers() {
  return kLayers;
}

}  // namespace plimsoll::engine
