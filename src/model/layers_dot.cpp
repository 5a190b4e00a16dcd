// Dot: a product of matrices per sample, as keras/src/layers/merging/dot.py.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "model/layer.h"
#include "ops/build.h"

namespace plimsoll::engine {
namespace {

// A tensor [N,...] as matrices [N,rows,columns]: one of the two dimensions is the axis that is summed over.
struct Matrices {
  ValueId value = kNone;
  bool axis_last = true;
};

// Joins all dimensions but the batch and the axis. An axis in the middle is moved to the end.
Matrices as_matrices(const BuildCall& call, ValueId x, size_t axis) {
  const Shape shape = call.shape(x);
  const int64_t along = shape[axis], others = shape.elements() / shape[0] / along;
  const bool last = axis + 1 == shape.rank();
  if (!last && axis != 1) {
    std::vector<int64_t> perm;
    for (size_t d = 0; d < shape.rank(); ++d)
      if (d != axis) perm.push_back(static_cast<int64_t>(d));
    perm.push_back(static_cast<int64_t>(axis));
    x = call.add("transpose", {x}, {{"perm", perm}});
  }
  const bool axis_last = last || axis != 1;
  const std::vector<int64_t> dims =
      axis_last ? std::vector<int64_t>{shape[0], others, along} : std::vector<int64_t>{shape[0], along, others};
  if (call.shape(x).dims != dims) x = call.add("reshape", {x}, {{"shape", dims}});
  return {x, axis_last};
}

// keras.ops.normalize of order 2: x * min(1 / norm, 1 / epsilon).
ValueId normalized(const BuildCall& call, ValueId x, size_t axis) {
  constexpr double kEpsilon = 1e-7;  // keras.backend.epsilon()
  Shape one = call.shape(x);
  one.dims[axis] = 1;
  const ValueId squares = call.add("reduce_to", {call.add("square", {x})}, {{"shape", one.dims}});
  const ValueId inverse = call.add("rsqrt", {squares});
  const ValueId bounded = call.add("minimum", {inverse, constant_like(call.b, inverse, 1 / kEpsilon)});
  return call.add("multiply", {x, broadcast_to(call.b, bounded, call.shape(x))});
}

Layer dot(Config& c) {
  std::array<int64_t, 2> axes{};
  const Json* value = c.value("axes");
  const bool pair = value && value->is_array() && value->size() == 2;
  for (size_t i = 0; i < 2; ++i) {
    const auto axis = value ? as_integer(pair ? (*value)[i] : *value) : std::nullopt;
    if (axis) {
      axes[i] = *axis;
    } else {
      c.issues().reject(
          fmt::format("{}: 'axes' must be an integer or two, got {}", c.where(), value ? shown(*value) : "nothing"));
      break;
    }
  }
  const bool normalize = c.flag("normalize", false);
  const std::string where = c.where();
  Layer layer;
  layer.least_inputs = layer.most_inputs = 2;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    std::array<int64_t, 2> at{};
    for (size_t i = 0; i < 2; ++i) {
      const auto axis = positive_axis(axes[i], in[i].rank() + 1);
      if (!axis || *axis == 0)
        return fail(ErrorCode::kBadGeometry,
                    fmt::format("{}: axis {} must be a dimension of [batch,{}] besides the batch", where, axes[i],
                                to_text(in[i])));
      at[i] = *axis - 1;
    }
    const auto size = [&](size_t i) { return in[i][static_cast<size_t>(at[i])]; };
    if (size(0) != size(1))
      return fail(ErrorCode::kBadGeometry,
                  fmt::format("{}: [{}] has {} along axis {}, but [{}] has {} along axis {}", where, to_text(in[0]),
                              size(0), axes[0], to_text(in[1]), size(1), axes[1]));
    std::vector<int64_t> dims;
    for (size_t i = 0; i < 2; ++i)
      for (size_t d = 0; d < in[i].rank(); ++d)
        if (static_cast<int64_t>(d) != at[i]) dims.push_back(in[i][d]);
    if (dims.empty()) dims.push_back(1);
    return checked_shape(std::move(dims), where);
  };
  layer.build = [=](const BuildCall& call) -> LayerValues {
    std::array<Matrices, 2> factors;
    for (size_t i = 0; i < 2; ++i) {
      ValueId x = call.inputs[i];
      const auto axis = static_cast<size_t>(*positive_axis(axes[i], call.shape(x).rank()));
      if (normalize) x = normalized(call, x, axis);
      factors[i] = as_matrices(call, x, axis);
    }
    const ValueId product = call.add("batch_matmul", {factors[0].value, factors[1].value},
                                     {{"transpose_a", !factors[0].axis_last}, {"transpose_b", factors[1].axis_last}});
    if (call.shape(product).dims == call.output_dims()) return product;
    return call.add("reshape", {product}, {{"shape", call.output_dims()}});
  };
  return layer;
}

constexpr std::array kLayers = {LayerClass{"Dot", dot}};

}  // namespace

std::span<const LayerClass> dot_layers() {
  return kLayers;
}

}  // namespace plimsoll::engine
