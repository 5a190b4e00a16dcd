// Element-wise operations, activations and normalisations. A normalisation becomes a factor and an offset per channel,
// which simplify() folds into the weights before it.
#include <fmt/format.h>

#include <array>
#include <cmath>

#include "ops/build.h"
#include "shrink/lite/converter.h"

namespace plimsoll::engine::lite {
namespace {

void binary_as(Converter& c, const Node& node, Op op) {
  const ValueId a = node.inputs[0], b = node.inputs[1], y = node.outputs[0];
  // The operators repeat the smaller operand themselves, if the result then has the right shape.
  int32_t left = c.unrepeated(a), right = c.unrepeated(b);
  const auto dims = [&](int32_t t) {
    const auto list = c.shape_of(t);
    return Shape(std::vector<int64_t>(list.begin(), list.end()));
  };
  const auto both = broadcast_shapes(dims(left), dims(right));
  if (!both || *both != c.shape(y)) {
    left = c.tensor(a);
    right = dims(left) == c.shape(y) ? c.unrepeated(b) : c.tensor(b);
  }
  c.set(y, c.add(op, {left, right}, dims_of(c.shape(y))));
}

template <Op op>
void binary(Converter& c, const Node& node) {
  binary_as(c, node, op);
}

template <Op op>
void unary(Converter& c, const Node& node) {
  c.set(node.outputs[0], c.add(op, {c.tensor(node.inputs[0])}, dims_of(c.shape(node.outputs[0]))));
}

void gelu(Converter& c, const Node& node) {
  Options options;
  options.approximate = node.attrs.flag("approximate");
  c.set(node.outputs[0], c.add(Op::kGelu, {c.tensor(node.inputs[0])}, dims_of(c.shape(node.outputs[0])), options));
}

void elu(Converter& c, const Node& node) {
  if (node.attrs.real("alpha") != 1) return c.refuse("elu with another alpha than 1");
  unary<Op::kElu>(c, node);
}

void silu(Converter& c, const Node& node) {
  const int32_t x = c.tensor(node.inputs[0]);
  const auto dims = c.shape_of(x);
  c.set(node.outputs[0], c.add(Op::kMul, {x, c.add(Op::kLogistic, {x}, dims)}, dims));
}

// relu6(x + 3) / 6
void hard_sigmoid(Converter& c, const Node& node) {
  const int32_t x = c.tensor(node.inputs[0]);
  const auto dims = c.shape_of(x);
  const int32_t clipped = c.add(Op::kRelu6, {c.add(Op::kAdd, {x, c.number(3)}, dims)}, dims);
  c.set(node.outputs[0], c.add(Op::kMul, {clipped, c.number(1.0F / 6)}, dims));
}

void relu(Converter& c, const Node& node) {
  const int32_t x = c.tensor(node.inputs[0]);
  const auto dims = c.shape_of(x);
  const double slope = node.attrs.real_or("negative_slope", 0), most = node.attrs.real_or("max_value", INFINITY);
  if (node.attrs.real_or("threshold", 0) != 0) return c.refuse("relu with a threshold");
  int32_t y = x;
  if (slope != 0) {
    Options options;
    options.alpha = static_cast<float>(slope);
    y = c.add(Op::kLeakyRelu, {x}, dims, options);
  } else {
    y = c.add(most == 6 ? Op::kRelu6 : Op::kRelu, {x}, dims);
  }
  if (std::isfinite(most) && (most != 6 || slope != 0))
    y = c.add(Op::kMinimum, {y, c.number(static_cast<float>(most))}, dims);
  c.set(node.outputs[0], y);
}

void affine(Converter& c, const Node& node) {
  int32_t x = c.tensor(node.inputs[0]);
  const auto dims = c.shape_of(x);
  const double scale = node.attrs.real("scale"), offset = node.attrs.real("offset");
  if (scale != 1) x = c.add(Op::kMul, {x, c.number(static_cast<float>(scale))}, dims);
  if (offset != 0) x = c.add(Op::kAdd, {x, c.number(static_cast<float>(offset))}, dims);
  c.set(node.outputs[0], x);
}

void reciprocal(Converter& c, const Node& node) {
  const int32_t x = c.tensor(node.inputs[0]);
  c.set(node.outputs[0], c.add(Op::kDiv, {c.number(1), x}, c.shape_of(x)));
}

void same(Converter& c, const Node& node) {
  c.set(node.outputs[0], c.tensor(node.inputs[0]));
}

void cast(Converter& c, const Node& node) {
  const DType from = c.graph().type(node.inputs[0]).dtype, to = c.graph().type(node.outputs[0]).dtype;
  if (from == to) return same(c, node);
  const auto known = [](DType dtype) { return dtype == DType::kFloat32 || dtype == DType::kInt32; };
  if (!known(from) || !known(to)) return c.refuse(fmt::format("a cast from {} to {}", name_of(from), name_of(to)));
  Options options;
  options.from = from == DType::kInt32 ? Type::kInt32 : Type::kFloat32;
  options.to = to == DType::kInt32 ? Type::kInt32 : Type::kFloat32;
  const int32_t x = c.tensor(node.inputs[0]);
  c.set(node.outputs[0], c.add(Op::kCast, {x}, c.shape_of(x), options));
}

void softmax(Converter& c, const Node& node) {
  const int32_t x = c.tensor(node.inputs[0]);
  c.set(node.outputs[0], c.add(Op::kSoftmax, {x}, c.shape_of(x)));
}

void batch_norm(Converter& c, const Node& node) {
  for (size_t i = 1; i < node.inputs.size(); ++i)
    if (!c.is_constant(node.inputs[i])) return c.refuse("a normalisation with statistics of the batch");
  const std::vector<float> mean = c.floats(node.inputs[1]), variance = c.floats(node.inputs[2]);
  const size_t n = mean.size();
  const double epsilon = node.attrs.real("epsilon");
  const bool scales = node.attrs.flag("scale"), centers = node.attrs.flag("center");
  const std::vector<float> gamma = scales ? c.floats(node.inputs[3]) : std::vector<float>(n, 1.0F);
  const std::vector<float> beta = centers ? c.floats(node.inputs[scales ? 4 : 3]) : std::vector<float>(n);
  std::vector<float> factor(n), offset(n);
  for (size_t i = 0; i < n; ++i) {
    const double f = gamma[i] / std::sqrt(double{variance[i]} + epsilon);
    factor[i] = static_cast<float>(f);
    offset[i] = static_cast<float>(beta[i] - mean[i] * f);
  }
  const auto channels = static_cast<int32_t>(n);
  const int32_t x = c.tensor(node.inputs[0]);
  const auto dims = c.shape_of(x);
  const int32_t scaled = c.add(Op::kMul, {x, c.add_constant({channels}, std::move(factor), "factor")}, dims);
  c.set(node.outputs[0], c.add(Op::kAdd, {scaled, c.add_constant({channels}, std::move(offset), "offset")}, dims));
}

void layer_norm(Converter& c, const Node& node) {
  int32_t x = c.tensor(node.inputs[0]);
  const auto dims = c.shape_of(x);
  auto rows = dims;
  rows.back() = 1;
  Options keep;
  keep.keep_dims = true;
  const int32_t axis = c.add_integers({static_cast<int32_t>(dims.size()) - 1}, "axis");
  if (!node.attrs.flag("rms")) x = c.add(Op::kSub, {x, c.add(Op::kMean, {x, axis}, rows, keep)}, dims);
  const int32_t variance = c.add(Op::kMean, {c.add(Op::kMul, {x, x}, dims), axis}, rows, keep);
  const int32_t shifted = c.add(Op::kAdd, {variance, c.number(static_cast<float>(node.attrs.real("epsilon")))}, rows);
  int32_t y = c.add(Op::kMul, {x, c.add(Op::kRsqrt, {shifted}, rows)}, dims);
  size_t next = 1;
  if (node.attrs.flag("scale")) y = c.add(Op::kMul, {y, c.tensor(node.inputs[next++])}, dims);
  if (node.attrs.flag("center")) y = c.add(Op::kAdd, {y, c.tensor(node.inputs[next++])}, dims);
  c.set(node.outputs[0], y);
}

constexpr std::array kConversions = {
    NodeConversion{"bias_add", binary<Op::kAdd>},
    NodeConversion{"channel_scale", binary<Op::kMul>},
    NodeConversion{"scale", binary<Op::kMul>},
    NodeConversion{"add", binary<Op::kAdd>},
    NodeConversion{"subtract", binary<Op::kSub>},
    NodeConversion{"multiply", binary<Op::kMul>},
    NodeConversion{"divide", binary<Op::kDiv>},
    NodeConversion{"maximum", binary<Op::kMaximum>},
    NodeConversion{"minimum", binary<Op::kMinimum>},
    NodeConversion{"sigmoid", unary<Op::kLogistic>},
    NodeConversion{"tanh", unary<Op::kTanh>},
    NodeConversion{"exp", unary<Op::kExp>},
    NodeConversion{"log", unary<Op::kLog>},
    NodeConversion{"sqrt", unary<Op::kSqrt>},
    NodeConversion{"rsqrt", unary<Op::kRsqrt>},
    NodeConversion{"square", unary<Op::kSquare>},
    NodeConversion{"abs", unary<Op::kAbs>},
    NodeConversion{"hard_silu", unary<Op::kHardSwish>},
    NodeConversion{"gelu", gelu},
    NodeConversion{"elu", elu},
    NodeConversion{"silu", silu},
    NodeConversion{"hard_sigmoid", hard_sigmoid},
    NodeConversion{"relu", relu},
    NodeConversion{"affine", affine},
    NodeConversion{"reciprocal", reciprocal},
    NodeConversion{"stop_gradient", same},
    NodeConversion{"cast", cast},
    NodeConversion{"softmax", softmax},
    NodeConversion{"batch_norm_apply", batch_norm},
    NodeConversion{"layer_norm", layer_norm},
};

}  // namespace

std::span<const NodeConversion> elementwise_conversions() {
  return kConversions;
}

}  // namespace plimsoll::engine::lite
