// Normalisations without moving statistics: by groups of channels, by the root mean square or the length of a vector;
// and Normalization and Rescaling, whose numbers come from the file.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "model/axes.h"
#include "ops/build.h"

namespace plimsoll::engine {
namespace {

ValueId normalized_rows(const BuildCall& call, ValueId x, double epsilon, bool rms) {
  return call.add("layer_norm", {x}, {{"epsilon", epsilon}, {"rms", rms}});
}

std::vector<int64_t> positive_axes(const std::vector<int64_t>& axes, size_t rank) {
  std::vector<int64_t> positive;
  for (int64_t a : axes) positive.push_back(*positive_axis(a, rank));
  std::sort(positive.begin(), positive.end());
  return positive;
}

// v, which has one number per element of these axes (sorted), as a tensor that broadcasts to [N, ...] of `rank` axes.
ValueId spread_along(const BuildCall& call, ValueId v, const std::vector<int64_t>& axes, const Shape& like) {
  std::vector<int64_t> dims(like.rank(), 1);
  for (int64_t a : axes) dims[static_cast<size_t>(a)] = like[static_cast<size_t>(a)];
  return viewed_as(call, v, std::move(dims));
}

// Statistics per sample and group: the axis of the channels is cut into [groups, channels of one], the groups move
// behind the batch, and each sample and group is a row.
ValueId normalized_groups(const BuildCall& call, ValueId x, size_t axis, int64_t groups, double epsilon) {
  const std::vector<int64_t> dims = call.shape(x).dims;
  std::vector<int64_t> cut = dims;
  cut[axis] /= groups;
  cut.insert(cut.begin() + static_cast<std::ptrdiff_t>(axis), groups);
  std::vector<int64_t> order(cut.size());
  std::iota(order.begin(), order.end(), 0);
  order.erase(order.begin() + static_cast<std::ptrdiff_t>(axis));
  order.insert(order.begin() + 1, static_cast<int64_t>(axis));
  // Dimensions of size 1 need no transposition: with one group, or without pixels before the channels.
  bool moves = groups > 1;
  if (moves)
    moves =
        std::any_of(cut.begin() + 1, cut.begin() + static_cast<std::ptrdiff_t>(axis), [](int64_t d) { return d > 1; });
  const int64_t rows = dims[0] * groups;
  const int64_t all = std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
  if (!moves) {
    const ValueId y = normalized_rows(call, viewed_as(call, x, {rows, all / rows}), epsilon, false);
    return viewed_as(call, y, dims);
  }
  std::vector<int64_t> back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  const ValueId moved = call.add("transpose", {viewed_as(call, x, cut)}, {{"perm", order}});
  const std::vector<int64_t> moved_dims = call.shape(moved).dims;
  const ValueId y = normalized_rows(call, viewed_as(call, moved, {rows, all / rows}), epsilon, false);
  return viewed_as(call, call.add("transpose", {viewed_as(call, y, moved_dims)}, {{"perm", back}}), dims);
}

// x * gamma + beta with one number per element of `axis`.
ValueId scale_axis(const BuildCall& call, ValueId x, size_t axis, ValueId gamma, ValueId beta) {
  const Shape shape = call.shape(x);
  if (axis + 1 == shape.rank()) return scale_channels(call, x, gamma, beta);
  const DType dtype = call.b.graph().type(x).dtype;
  const auto full = [&](ValueId v) {
    if (call.b.graph().type(v).dtype != dtype) v = call.add("cast", {v}, {{"dtype", std::string(name_of(dtype))}});
    return broadcast_dims(call, spread_along(call, v, {static_cast<int64_t>(axis)}, shape), shape.dims);
  };
  if (gamma != kNone) x = call.add("multiply", {x, full(gamma)});
  return beta == kNone ? x : call.add("add", {x, full(beta)});
}

Layer group_normalization(Config& c) {
  constexpr int64_t kMostGroups = int64_t{1} << 32;
  const int64_t groups = c.integer("groups", -1, kMostGroups, 32);
  if (groups == 0) c.issues().reject(fmt::format("{}: 'groups' must be positive or -1, got 0", c.where()));
  const double epsilon = c.real("epsilon", 1e-3);
  const bool scale = c.flag("scale", true), center = c.flag("center", true);
  const std::vector<int64_t> axis = read_axis_list(c, "axis", {-1});
  const WeightConfig gamma = read_weight(c, "gamma", "ones"), beta = read_weight(c, "beta", "zeros");
  const std::string where = c.where();
  Layer layer;
  layer.masking = Masking::kPasses;
  layer.float32_weights = true;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    PLIMSOLL_ASSIGN(const auto at, checked_axes(axis, in[0], where));
    if (at.size() != 1) return fail(ErrorCode::kBadGeometry, where + ": 'axis' must be one axis");
    const int64_t channels = in[0][static_cast<size_t>(at[0] - 1)];
    if (groups == 0 || channels % (groups == -1 ? channels : groups) != 0)
      return fail(ErrorCode::kBadGeometry,
                  fmt::format("{}: {} channels cannot be divided into {} groups", where, channels, groups));
    LayerShape shape(in[0]);
    if (scale) shape.weights.push_back(gamma.spec("gamma", Shape{channels}));
    if (center) shape.weights.push_back(beta.spec("beta", Shape{channels}));
    return shape;
  };
  layer.build = [=](const BuildCall& call) {
    const auto at = static_cast<size_t>(*positive_axis(axis[0], call.shape(call.in()).rank()));
    const int64_t channels = call.shape(call.in())[at];
    const ValueId y = normalized_groups(call, call.in(), at, groups == -1 ? channels : groups, epsilon);
    return scale_axis(call, y, at, scale ? call.weights[0] : kNone, center ? call.weights[scale ? 1 : 0] : kNone);
  };
  return layer;
}

Layer rms_normalization(Config& c) {
  const double epsilon = c.real("epsilon", 1e-6);
  const std::vector<int64_t> axis = read_axis_list(c, "axis", {-1});
  const std::string where = c.where();
  Layer layer;
  layer.float32_weights = true;
  layer.shape = [=](std::span<const Shape> in, Issues& issues) -> Result<LayerShape> {
    PLIMSOLL_TRY(checked_axes(axis, in[0], where));
    std::vector<int64_t> sorted = axis, dims;
    std::sort(sorted.begin(), sorted.end());
    for (int64_t a : sorted) dims.push_back(in[0][static_cast<size_t>(*positive_axis(a, in[0].rank() + 1) - 1)]);
    // Keras multiplies by `scale` as it is: aligned at the last axis, whatever `axis` says.
    const Shape scale(dims);
    if (broadcast_shapes(scale, in[0]) != in[0])
      issues.unknown(fmt::format("{}: axis=[{}], whose scale does not fit the last axes", where, fmt::join(axis, ",")));
    WeightSpec spec;
    spec.name = "scale";
    spec.shape = scale;
    spec.initializer = "ones";
    return LayerShape(in[0], {spec});
  };
  layer.build = [=](const BuildCall& call) {
    const Shape shape = call.shape(call.in());
    const std::vector<int64_t> at = positive_axes(axis, shape.rank());
    const ValueId x = axes_to_end(call, call.in(), at), scale = call.weights[0];
    if (at.front() ==
        static_cast<int64_t>(shape.rank() - at.size())) {  // the last axes: scale is one number per column
      const ValueId y = call.add("layer_norm", {x, viewed_as(call, scale, {call.shape(x).back()})},
                                 {{"epsilon", epsilon}, {"rms", true}, {"scale", true}});
      return axes_back(call, y, call.in(), at);
    }
    const ValueId y = axes_back(call, normalized_rows(call, x, epsilon, true), call.in(), at);
    if (call.shape(scale).rank() == 1 && call.shape(scale).back() == shape.back())
      return scale_channels(call, y, scale, kNone);
    const DType dtype = call.b.graph().type(y).dtype;
    const ValueId own = call.b.graph().type(scale).dtype == dtype
                            ? scale
                            : call.add("cast", {scale}, {{"dtype", std::string(name_of(dtype))}});
    return call.add("multiply", {y, broadcast_dims(call, own, shape.dims)});
  };
  return layer;
}

// x / |x|: the root mean square of k numbers is |x| / sqrt(k). Keras's norm is at least 1e-12.
Layer unit_normalization(Config& c) {
  const std::vector<int64_t> axis = read_axis_list(c, "axis", {-1});
  const std::string where = c.where();
  Layer layer;
  layer.masking = Masking::kPasses;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    PLIMSOLL_TRY(checked_axes(axis, in[0], where));
    return LayerShape(in[0]);
  };
  layer.build = [=](const BuildCall& call) {
    const std::vector<int64_t> at = positive_axes(axis, call.shape(call.in()).rank());
    const ValueId x = axes_to_end(call, call.in(), at);
    const auto k = static_cast<double>(call.shape(x).back());
    const ValueId y = normalized_rows(call, x, 1e-24 / k, true);
    const ValueId unit = call.add("affine", {y}, {{"scale", 1 / std::sqrt(k)}, {"offset", 0.0}});
    return axes_back(call, unit, call.in(), at);
  };
  return layer;
}

// Numbers of a configuration: one, a nested list, or a NumPy array as Keras writes it.
struct Numbers {
  std::vector<double> values;
  Shape shape;
  bool given = false;
};

bool add_numbers(const Json& json, size_t depth, Numbers& numbers, std::vector<int64_t>& dims) {
  constexpr size_t kDeepest = 8;
  if (const auto real = as_number(json)) {
    numbers.values.push_back(*real);
    return depth == dims.size() && static_cast<int64_t>(numbers.values.size()) <= kMostConstants;
  }
  if (!json.is_array() || depth >= kDeepest || json.empty()) return false;
  if (dims.size() == depth && numbers.values.empty()) dims.push_back(static_cast<int64_t>(json.size()));
  if (depth >= dims.size() || dims[depth] != static_cast<int64_t>(json.size())) return false;
  return std::all_of(json.begin(), json.end(),
                     [&](const Json& one) { return add_numbers(one, depth + 1, numbers, dims); });
}

Numbers read_numbers(Config& c, const std::string& key) {
  Numbers numbers;
  const Json* value = c.value(key);
  if (!value) return numbers;
  numbers.given = true;
  const Json* list = value;
  if (text_member(*value, "class_name") == "__numpy__")
    if (const Json* config = member(*value, "config"); config && member(*config, "value"))
      list = member(*config, "value");
  std::vector<int64_t> dims;
  if (!add_numbers(*list, 0, numbers, dims)) {
    c.issues().unknown(fmt::format("{}: {}={}", c.where(), key, shown(*value)));
    return {{1.0}, Shape{}, true};
  }
  numbers.shape = Shape(dims);
  return numbers;
}

ValueId constant(const BuildCall& call, const Numbers& numbers, DType dtype) {
  return call.b.add1("constant", {}, constant_attrs(numbers.shape, dtype, numbers.values));
}

// max(sqrt(variance), 1e-7)
ValueId deviation(const BuildCall& call, ValueId variance) {
  const ValueId root = call.add("sqrt", {variance});
  return call.add("maximum", {root, constant_like(call.b, root, 1e-7)});
}

Layer normalization(Config& c) {
  const std::vector<int64_t> axis = read_axis_list(c, "axis", {-1});  // [] is one mean for everything
  const Numbers mean = read_numbers(c, "mean"), variance = read_numbers(c, "variance");
  const bool invert = c.flag("invert", false);
  if (mean.given != variance.given)
    c.issues().reject(fmt::format("{}: it must have both 'mean' and 'variance', or neither", c.where()));
  const std::string where = c.where();
  Layer layer;
  layer.masking = Masking::kPasses;
  layer.float32_weights = true;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    PLIMSOLL_ASSIGN(const auto at, checked_axes(axis, in[0], where));
    std::vector<int64_t> dims;
    for (int64_t a : at) dims.push_back(in[0][static_cast<size_t>(a - 1)]);
    if (mean.given) {
      for (const Numbers* numbers : {&mean, &variance})
        if (broadcast_shapes(numbers->shape, Shape(dims)) != Shape(dims))
          return fail(ErrorCode::kBadGeometry, fmt::format("{}: a mean or variance of [{}] does not fit the axes [{}]",
                                                           where, to_text(numbers->shape), to_text(Shape(dims))));
      return LayerShape(in[0]);
    }
    LayerShape shape(in[0]);
    for (const auto& [name, initializer, own] :
         {std::tuple{"mean", "zeros", Shape(dims)}, {"variance", "ones", Shape(dims)}, {"count", "zeros", Shape{}}}) {
      WeightSpec spec;
      spec.name = name;
      spec.shape = own;
      spec.initializer = initializer;
      spec.frozen = true;
      shape.weights.push_back(std::move(spec));
    }
    return shape;
  };
  layer.build = [=](const BuildCall& call) {
    const Shape shape = call.shape(call.in());
    const std::vector<int64_t> at = positive_axes(axis, shape.rank());
    std::vector<int64_t> own;
    for (int64_t a : at) own.push_back(shape[static_cast<size_t>(a)]);
    const DType dtype = call.b.graph().type(call.in()).dtype;
    const DType wide = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
    ValueId m = kNone, d = kNone;
    if (mean.given) {
      m = broadcast_dims(call, constant(call, mean, wide), own);
      d = deviation(call, broadcast_dims(call, constant(call, variance, wide), own));
    } else {
      m = call.weights[0];
      d = deviation(call, call.weights[1]);
    }
    const auto full = [&](ValueId v) {
      if (call.b.graph().type(v).dtype != dtype) v = call.add("cast", {v}, {{"dtype", std::string(name_of(dtype))}});
      return broadcast_dims(call, spread_along(call, v, at, shape), shape.dims);
    };
    const bool channels = at.size() == 1 && at[0] + 1 == static_cast<int64_t>(shape.rank());
    if (invert)
      return channels ? scale_channels(call, call.in(), d, m)
                      : call.add("add", {call.add("multiply", {call.in(), full(d)}), full(m)});
    if (channels)
      return call.add("batch_norm_apply", {call.in(), m, call.add("square", {d})},
                      {{"epsilon", 0.0}, {"scale", false}, {"center", false}});
    return call.add("divide", {call.add("subtract", {call.in(), full(m)}), full(d)});
  };
  return layer;
}

// `scale` and `offset` are numbers, or lists that NumPy's rules broadcast to the input: one number per channel.
Layer rescaling(Config& c) {
  Numbers scale = read_numbers(c, "scale"), offset = read_numbers(c, "offset");
  if (!scale.given) scale = {{1.0}, Shape{}, true};
  if (!offset.given) offset = {{0.0}, Shape{}, true};
  const std::string where = c.where();
  Layer layer;
  layer.masking = Masking::kPasses;
  layer.shape = [=](std::span<const Shape> in, Issues& issues) -> Result<LayerShape> {
    const Shape whole = with_batch(1, in[0]);
    for (const Numbers* numbers : {&scale, &offset})
      if (broadcast_shapes(numbers->shape, whole) != whole)
        issues.unknown(fmt::format("{}: a list of [{}] for an input of [batch,{}]", where, to_text(numbers->shape),
                                   to_text(in[0])));
    return LayerShape(in[0]);
  };
  layer.build = [=](const BuildCall& call) {
    const ValueId x = call.in();
    if (scale.shape.rank() == 0 && offset.shape.rank() == 0)
      return call.add("affine", {x}, {{"scale", scale.values[0]}, {"offset", offset.values[0]}});
    const DType dtype = call.b.graph().type(x).dtype;
    const Shape shape = call.shape(x);
    const auto fits = [&](const Numbers& n) { return n.shape.rank() == 0 || n.shape == Shape{shape.back()}; };
    if (fits(scale) && fits(offset) && shape.rank() >= 2) {
      const auto channels = [&](const Numbers& n) {
        return broadcast_dims(call, constant(call, n, dtype == DType::kFloat64 ? dtype : DType::kFloat32),
                              {shape.back()});
      };
      return scale_channels(call, x, channels(scale), channels(offset));
    }
    const auto full = [&](const Numbers& n) { return broadcast_dims(call, constant(call, n, dtype), shape.dims); };
    return call.add("add", {call.add("multiply", {x, full(scale)}), full(offset)});
  };
  return layer;
}

constexpr std::array kLayers = {
    LayerClass{"GroupNormalization", group_normalization},
    LayerClass{"RMSNormalization", rms_normalization},
    LayerClass{"UnitNormalization", unit_normalization},
    LayerClass{"Normalization", normalization},
    LayerClass{"Rescaling", rescaling},
};

}  // namespace

std::span<const LayerClass> more_normalization_layers() {
  return kLayers;
}

}  // namespace plimsoll::engine
