// Scaled dot-product attention over heads, and its gradient. The T x T matrix of weights is not a value of the graph:
// the forward pass keeps log(sum(exp)) of each query's scores, and the backward pass recomputes the weights from it.
// Queries, keys and values are three tensors [N,T,H,D], or one tensor [N,T,3,H,D], the result of a single matrix
// product.
#include <cmath>

#include "ops/families.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

bool is_packed(const Shape& q) {
  return q.rank() == 5;
}
Shape heads_shape(const Shape& q) {
  return is_packed(q) ? Shape{q[0], q[1], q[3], q[4]} : q;
}

// The sizes of [N,T,H,D]. In causal attention, position t sees positions 0 to t.
struct Heads {
  int64_t n, t, h, d;
  int64_t parts;  // 3 if q, k and v are in one tensor
  bool causal;
  double scale;

  Heads(const Shape& q, const Attrs& attrs)
      : n(q[0]),
        t(q[1]),
        h(heads_shape(q)[2]),
        d(q.back()),
        parts(is_packed(q) ? 3 : 1),
        causal(attrs.flag("causal")),
        scale(attrs.real("scale")) {}

  int64_t row(int64_t sample, int64_t position, int64_t head) const { return ((sample * t + position) * h + head) * d; }
  // Returns an index into q, k, v or their gradients. The next of the three begins part() elements later.
  int64_t in_row(int64_t sample, int64_t position, int64_t head) const {
    return ((sample * t + position) * parts * h + head) * d;
  }
  int64_t part() const { return h * d; }
  int64_t visible(int64_t position) const { return causal ? position + 1 : t; }
};

double dot(const double* a, const double* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

// Sums of many terms are kept in at least f32, whatever the tensors' dtype.
DType stats_dtype(DType dtype) {
  return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

TensorType stats_type(const TensorType& q) {
  const Shape shape = heads_shape(q.shape);
  return {stats_dtype(q.dtype), Shape{shape[0], shape[2], shape[1]}};
}

Result<Types> infer_forward(InTypes in, const Attrs& attrs) {
  InferCheck check("attention", in, attrs);
  if (in.size() == 1) {
    if (!check.all_floats() || !check.rank(0, 5) ||
        !check.require(in[0].shape[2] == 3, "one input must be [N,T,3,H,D]") || !check.optional_flag("causal") ||
        !check.real("scale"))
      return check.failed();
    return check.outputs({{in[0].dtype, heads_shape(in[0].shape)}, stats_type(in[0])});
  }
  if (!check.inputs(3) || !check.all_floats() || !check.rank(0, 4) || !check.same_shape(0, 1) ||
      !check.same_shape(0, 2) || !check.optional_flag("causal") || !check.real("scale"))
    return check.failed();
  return check.outputs({in[0], stats_type(in[0])});
}

Result<Types> infer_grad(InTypes in, const Attrs& attrs) {
  InferCheck check("attention_grad", in, attrs);
  if (in.size() == 4) {  // dy, qkv, y, stats
    if (!check.floats({0, 1, 2}) || !check.rank(1, 5) || !check.same_shape(0, 2) ||
        !check.require(in[1].shape[2] == 3 && heads_shape(in[1].shape) == in[0].shape,
                       "needs [N,T,3,H,D] together with y") ||
        !check.optional_flag("causal") || !check.real("scale"))
      return check.failed();
    check.require(in[3] == stats_type(in[1]), fmt::format("the statistics must be {}", to_text(stats_type(in[1]))));
    return check.outputs({in[1]});
  }
  if (!check.inputs(6) || !check.floats({0, 1, 2, 3, 4}) || !check.rank(0, 4) || !check.same_shape(0, 1) ||
      !check.same_shape(0, 2) || !check.same_shape(0, 3) || !check.same_shape(0, 4) || !check.optional_flag("causal") ||
      !check.real("scale"))
    return check.failed();
  const TensorType stats = stats_type(in[1]);
  check.require(in[5] == stats, fmt::format("the statistics must be {}", to_text(stats)));
  return check.outputs({in[1], in[2], in[3]});
}

std::vector<ValueId> gradient(const GradientCall& g) {
  assert(g.output_grads[1] == kNone);
  if (g.node.inputs.size() == 1)
    return {g.wants(0) ? g.b.add1("attention_grad", {g.grad(), g.in(0), g.out(0), g.out(1)}, Attrs(g.node.attrs))
                       : kNone};
  if (!g.wants(0) && !g.wants(1) && !g.wants(2)) return {kNone, kNone, kNone};
  auto grads =
      g.b.add("attention_grad", {g.grad(), g.in(0), g.in(1), g.in(2), g.out(0), g.out(1)}, Attrs(g.node.attrs));
  for (size_t i = 0; i < 3; ++i)
    if (!g.wants(i)) grads[i] = kNone;
  return grads;
}

void reference_forward(const ReferenceCall& call) {
  const Heads s(call.inputs[0].type.shape, call.attrs);
  const bool packed = s.parts == 3;
  const double *q = in(call, 0), *k = packed ? q + s.part() : in(call, 1), *v = packed ? k + s.part() : in(call, 2);
  for_each(s.n * s.h * s.t, s.t * s.d * 2, [&](int64_t item) {
    const int64_t position = item % s.t, head = item / s.t % s.h, sample = item / s.t / s.h;
    const int64_t row = s.in_row(sample, position, head), seen = s.visible(position);
    std::vector<double> weights(static_cast<size_t>(seen));
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < seen; ++j) {
      weights[static_cast<size_t>(j)] = s.scale * dot(q + row, k + s.in_row(sample, j, head), s.d);
      most = std::max(most, weights[static_cast<size_t>(j)]);
    }
    for (double& w : weights) sum += w = std::exp(w - most);
    double* y = out(call) + s.row(sample, position, head);
    std::fill(y, y + s.d, 0.0);
    for (int64_t j = 0; j < seen; ++j) {
      const double w = weights[static_cast<size_t>(j)] / sum, *from = v + s.in_row(sample, j, head);
      for (int64_t i = 0; i < s.d; ++i) y[i] += w * from[i];
    }
    out(call, 1)[item] = most + std::log(sum);  // items are numbered in the order of [N,H,T]
  });
}

// With P = exp(scores - stats): dV = P' dY, dS = P * (dY V' - rowsum(dY * Y)), dQ = scale dS K, dK = scale dS' Q.
void reference_grad(const ReferenceCall& call) {
  const Heads s(call.inputs[1].type.shape, call.attrs);
  const bool packed = s.parts == 3;
  const double *dy = in(call, 0), *q = in(call, 1), *k = packed ? q + s.part() : in(call, 2),
               *v = packed ? k + s.part() : in(call, 3), *y = in(call, packed ? 2 : 4),
               *stats = in(call, packed ? 3 : 5);
  double *dq = out(call, 0), *dk = packed ? dq + s.part() : out(call, 1), *dv = packed ? dk + s.part() : out(call, 2);
  for (size_t i = 0; i < call.outputs.size(); ++i) std::fill_n(out(call, i), call.outputs[i].elements(), 0.0);
  for_each(s.n * s.h, s.t * s.t * s.d * 4, [&](int64_t item) {
    const int64_t head = item % s.h, sample = item / s.h;
    for (int64_t position = 0; position < s.t; ++position) {
      const int64_t row = s.in_row(sample, position, head), y_row = s.row(sample, position, head);
      const double own = dot(dy + y_row, y + y_row, s.d), lse = stats[item * s.t + position];
      for (int64_t j = 0; j < s.visible(position); ++j) {
        const int64_t other = s.in_row(sample, j, head);
        const double p = std::exp(s.scale * dot(q + row, k + other, s.d) - lse);
        const double ds = s.scale * p * (dot(dy + y_row, v + other, s.d) - own);
        for (int64_t i = 0; i < s.d; ++i) {
          dv[other + i] += p * dy[y_row + i];
          dq[row + i] += ds * k[other + i];
          dk[other + i] += ds * q[row + i];
        }
      }
    }
  });
}

// There are two matrix products forward and five backward. With a causal mask each costs half.
double product_flops(const Shape& q, const Attrs& attrs, double products) {
  const double all = 2.0 * static_cast<double>(heads_shape(q).elements()) * static_cast<double>(q[1]) * products;
  return attrs.flag("causal") ? all / 2 : all;
}

OpDef forward_op() {
  OpDef op;
  op.name = "attention";
  op.recompute = Recompute::kCostly;
  op.infer = infer_forward;
  op.gradient = gradient;
  op.reference = reference_forward;
  op.flops = [](InTypes in, InTypes, const Attrs& attrs) { return product_flops(in[0].shape, attrs, 2); };
  op.error_units = 16;
  const std::vector<std::string> three = {"normal", "normal", "normal"};
  const auto same = [](const TensorType& type) { return Types{type, type, type}; };
  const auto attrs = [](double scale, bool causal) {
    return causal ? Attrs{{"scale", scale}, {"causal", true}} : Attrs{{"scale", scale}};
  };
  op.cases = {{"full", same(f32({2, 5, 3, 4})), attrs(0.5, false), three, {0, 1, 2}},
              {"causal", same(f32({2, 7, 2, 8})), attrs(0.35, true), three, {0, 1, 2}},
              // The gradients of q and k are rounding noise around 0.
              {"one_position", same(f32({2, 1, 2, 4})), attrs(0.5, true), three, {}},
              {"packed", {f32({2, 7, 3, 2, 8})}, attrs(0.35, true), {"normal"}, {0}},
              {"one_head", same(f32({1, 17, 1, 16})), attrs(0.25, true), three, {0, 1, 2}},
              {"steep", same(f32({1, 9, 2, 16})), attrs(8.0, false), three, {}},
              {"tiles", same(f32({1, 130, 2, 64})), attrs(0.125, true), three, {}},
              {"odd_width", same(f32({1, 70, 1, 40})), attrs(0.16, false), three, {}}};
  return op;
}

OpDef grad_op() {
  OpDef op;
  op.name = "attention_grad";
  op.recompute = Recompute::kNever;
  op.infer = infer_grad;
  op.reference = reference_grad;
  op.flops = [](InTypes in, InTypes, const Attrs& attrs) { return product_flops(in[1].shape, attrs, 5); };
  op.error_units = 32;
  const std::vector<std::string> fill = {"normal", "normal", "normal", "normal", "normal", "value:4"};
  const auto inputs = [](std::initializer_list<int64_t> dims) {
    const TensorType type = f32(dims);
    return Types{type, type, type, type, type, stats_type(type)};
  };
  op.cases = {
      {"full", inputs({2, 5, 3, 4}), {{"scale", 0.5}}, fill, {}},
      {"causal", inputs({1, 9, 2, 8}), {{"scale", 0.35}, {"causal", true}}, fill, {}},
      {"tiles", inputs({1, 130, 2, 64}), {{"scale", 0.125}, {"causal", true}}, fill, {}},
      {"odd_width", inputs({1, 70, 1, 40}), {{"scale", 0.16}}, fill, {}},
      {"packed",
       {f32({1, 70, 2, 40}), f32({1, 70, 3, 2, 40}), f32({1, 70, 2, 40}), f32({1, 2, 70})},
       {{"scale", 0.16}, {"causal", true}},
       {"normal", "normal", "normal", "value:4"},
       {}},
  };
  return op;
}

}  // namespace

std::vector<OpDef> attention_ops() {
  return {forward_op(), grad_op()};
}

}  // namespace plimsoll::engine
