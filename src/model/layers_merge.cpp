// Layers of several inputs: Add, Multiply, Concatenate.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "model/layer.h"

namespace plimsoll {
namespace {

constexpr size_t kAnyNumber = std::numeric_limits<size_t>::max();

// Keras gives inputs of lower rank ones behind the batch, then broadcasts.
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
        return fail(ErrorCode::kBadGeometry,
                    fmt::format("{}: [{}] does not go together with the inputs before it, [{}]", where, to_text(s),
                                fmt::join(dims, ",")));
      dims[d] = padded[d];
    }
  }
  return checked_shape(std::move(dims), where);
}

Layer elementwise(Config& c, const std::string& op) {
  const std::string& where = c.where();
  Layer layer;
  layer.most_inputs = kAnyNumber;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    PLIMSOLL_ASSIGN(Shape output, broadcast_all(in, where));
    return LayerShape{std::move(output), {}};
  };
  layer.build = [=](const BuildCall& call) {
    std::vector<Shape> samples;
    for (ValueId x : call.inputs) {
      const Shape& s = call.shape(x);
      samples.emplace_back(std::vector<int64_t>(s.dims.begin() + 1, s.dims.end()));
    }
    const auto output = broadcast_all(samples, where);
    assert(output);
    std::vector<int64_t> whole{call.batch};
    whole.insert(whole.end(), output->dims.begin(), output->dims.end());
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
    return sum;
  };
  return layer;
}

Layer concatenate(Config& c) {
  const int64_t axis = c.integer("axis", -64, 64, -1);
  const std::string where = c.where();
  Layer layer;
  layer.most_inputs = kAnyNumber;
  layer.shape = [=](std::span<const Shape> in, Issues& issues) -> Result<LayerShape> {
    const auto at = positive_axis(axis, in[0].rank() + 1);
    if (!at)
      return fail(ErrorCode::kBadGeometry,
                  fmt::format("{}: axis {} is outside of [batch,{}]", where, axis, to_text(in[0])));
    if (*at == 0) {
      issues.unknown(fmt::format("{}: axis=0, the batch", where));
      return LayerShape{in[0], {}};
    }
    std::vector<int64_t> dims = in[0].dims;
    const auto d = static_cast<size_t>(*at - 1);
    for (const Shape& s : in.subspan(1)) {
      Shape aligned = s;
      if (s.rank() == in[0].rank()) aligned.dims[d] = in[0][d];
      if (aligned != in[0])
        return fail(ErrorCode::kBadGeometry, fmt::format("{}: [{}] and [{}] differ outside of axis {}", where,
                                                         to_text(in[0]), to_text(s), axis));
      dims[d] += s[d];
    }
    PLIMSOLL_ASSIGN(Shape output, checked_shape(std::move(dims), where));
    return LayerShape{std::move(output), {}};
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

}  // namespace plimsoll
