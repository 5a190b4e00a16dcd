// Scaled dot-product attention over heads, and its gradient. The Tq x Tk matrix of weights is not a value of the graph:
// the forward pass keeps log(sum(exp)) of each query's scores, and the backward pass recomputes the weights from it.
// Queries, keys and values are three tensors, or one tensor [N,T,3,H,D], the result of a single matrix product
// (attention.h). A query that sees no position has equal weights for all of them; its scores count as 0.
#include "ops/attention.h"

#include <cmath>

#include "ops/families.h"
#include "ops/util.h"

namespace plimsoll::engine {

AttentionForm attention_form(const Shape& q, const Shape& k, const Shape& v, const Attrs& attrs) {
  const bool packed = q.rank() == 5;
  AttentionForm form;
  form.parts = packed ? 3 : 1;
  form.n = q[0], form.tq = q[1], form.tk = k[1];
  form.h = q[packed ? 3 : 2], form.g = k[packed ? 3 : 2];
  form.d = q.back(), form.dv = v.back();
  form.causal = attrs.flag("causal");
  form.window = attrs.has("window") ? attrs.integer("window") : 0;
  form.scale = attrs.real("scale");
  form.masks = attrs.has("masks") ? attrs.text("masks") : "";
  return form;
}

namespace {

double dot(const double* a, const double* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

// Sums of many terms are kept in at least f32, whatever the tensors' dtype.
DType stats_dtype(DType dtype) {
  return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

Shape heads_shape(const Shape& q) {
  return q.rank() == 5 ? Shape{q[0], q[1], q[3], q[4]} : q;
}

// The output and the statistics.
Types outputs_of(const TensorType& q, const TensorType& v) {
  Shape y = heads_shape(q.shape);
  const Shape stats{y[0], y[2], y[1]};
  y.dims.back() = v.shape.back();
  return {{q.dtype, std::move(y)}, {stats_dtype(q.dtype), stats}};
}

bool attrs_hold(InferCheck& check, const Attrs& attrs) {
  return check.optional_flag("causal") && check.real("scale") && (!attrs.has("window") || check.integer("window", 1)) &&
         (!attrs.has("masks") || check.has("masks", "text"));
}

std::string masks_of(const Attrs& attrs) {
  return attrs.has("masks") ? attrs.text("masks") : "";
}

// Whether the three tensors from input `q` on fit together.
bool heads_fit(InferCheck& check, InTypes in, size_t q) {
  if (!check.rank(q, 4) || !check.rank(q + 1, 4) || !check.rank(q + 2, 4)) return false;
  const Shape &queries = in[q].shape, &keys = in[q + 1].shape, &values = in[q + 2].shape;
  return check.require(keys[0] == queries[0] && keys[3] == queries[3] && values[0] == keys[0] && values[1] == keys[1] &&
                           values[2] == keys[2],
                       "queries [N,Tq,H,D] need keys [N,Tk,G,D] and values [N,Tk,G,V]") &&
         check.require(keys[2] > 0 && queries[2] % keys[2] == 0,
                       "the heads of the keys must divide those of the queries");
}

bool masks_fit(InferCheck& check, InTypes in, size_t q, const std::string& masks) {
  const Shape &queries = in[q].shape, &keys = in[q + 1].shape;
  const int64_t n = queries[0], h = queries[2], tq = queries[1], tk = keys[1];
  std::string seen;
  for (size_t i = 0; i < masks.size(); ++i) {
    const Shape& mask = in[q + 3 + i].shape;
    const char letter = masks[i];
    const bool fits = letter == 'q'   ? mask == Shape{n, tq}
                      : letter == 'k' ? mask == Shape{n, tk}
                                      : letter == 'm' && mask.rank() == 4 && (mask[0] == 1 || mask[0] == n) &&
                                            (mask[1] == 1 || mask[1] == h) && mask[2] == tq && mask[3] == tk;
    if (!check.require(fits && seen.find(letter) == std::string::npos && is_floating(in[q + 3 + i].dtype),
                       "masks are q [N,Tq], k [N,Tk] and m [1 or N, 1 or H, Tq, Tk], each at most once"))
      return false;
    seen += letter;
  }
  return true;
}

Result<Types> infer_forward(InTypes in, const Attrs& attrs) {
  InferCheck check("attention", in, attrs);
  if (in.size() == 1) {
    if (!check.all_floats() || !check.rank(0, 5) ||
        !check.require(in[0].shape[2] == 3, "one input must be [N,T,3,H,D]") || !attrs_hold(check, attrs) ||
        !check.require(masks_of(attrs).empty(), "one input has no masks"))
      return check.failed();
    return check.outputs(outputs_of(in[0], in[0]));
  }
  if (!attrs_hold(check, attrs)) return check.failed();
  const std::string masks = masks_of(attrs);
  if (!check.inputs(3 + masks.size()) || !check.floats({0}) ||
      !check.require(in[0].dtype == in[1].dtype && in[0].dtype == in[2].dtype, "q, k and v must have one dtype") ||
      !heads_fit(check, in, 0) || !masks_fit(check, in, 0, masks))
    return check.failed();
  return check.outputs(outputs_of(in[0], in[2]));
}

// Inputs: dy, q, k, v, the masks, y, stats; or dy, qkv, y, stats.
Result<Types> infer_grad(InTypes in, const Attrs& attrs) {
  InferCheck check("attention_grad", in, attrs);
  if (!attrs_hold(check, attrs)) return check.failed();
  if (in.size() == 4) {
    if (!check.floats({0, 1, 2}) || !check.rank(1, 5) || !check.same_shape(0, 2) ||
        !check.require(masks_of(attrs).empty(), "one input has no masks") ||
        !check.require(in[1].shape[2] == 3 && heads_shape(in[1].shape) == in[0].shape,
                       "needs [N,T,3,H,D] together with y"))
      return check.failed();
    const TensorType stats = outputs_of(in[1], in[1])[1];
    check.require(in[3] == stats, fmt::format("the statistics must be {}", to_text(stats)));
    return check.outputs({in[1]});
  }
  const std::string masks = masks_of(attrs);
  const size_t y = 4 + masks.size();
  if (!check.inputs(y + 2) || !check.floats({0, 1, 2, 3, y}) || !heads_fit(check, in, 1) ||
      !masks_fit(check, in, 1, masks))
    return check.failed();
  const Types made = outputs_of(in[1], in[3]);
  check.require(in[0].shape == made[0].shape && in[y].shape == made[0].shape,
                fmt::format("dy and y must be [{}]", to_text(made[0].shape)));
  check.require(in[y + 1] == made[1], fmt::format("the statistics must be {}", to_text(made[1])));
  return check.outputs({in[1], in[2], in[3]});
}

std::vector<ValueId> gradient(const GradientCall& g) {
  assert(g.output_grads[1] == kNone);
  const std::vector<ValueId>& in = g.node.inputs;
  std::vector<ValueId> grads(in.size(), kNone);
  if (!g.wants(0) && (in.size() == 1 || (!g.wants(1) && !g.wants(2)))) return grads;
  std::vector<ValueId> reads{g.grad()};
  reads.insert(reads.end(), in.begin(), in.end());
  reads.insert(reads.end(), {g.out(0), g.out(1)});
  const std::vector<ValueId> made = g.b.add("attention_grad", std::move(reads), Attrs(g.node.attrs));
  for (size_t i = 0; i < made.size(); ++i)
    if (g.wants(i)) grads[i] = made[i];
  return grads;
}

AttentionForm form_of(const char* op, const ReferenceCall& call) {
  return attention_form(op, call.inputs.size(), call.attrs,
                        [&](size_t i) -> const Shape& { return call.inputs[i].type.shape; });
}

// The weights of one query for all positions, from the log(sum(exp)) of its scores.
void reference_forward(const ReferenceCall& call) {
  const AttentionForm f = form_of("attention", call);
  const bool packed = f.parts == 3;
  const double *q = in(call, 0), *k = packed ? q + f.part() : in(call, 1), *v = packed ? k + f.part() : in(call, 2);
  const auto masks = attention_masks<double>(f, 3, [&](size_t i) { return in(call, i); });
  for_each(f.n * f.h * f.tq, f.tk * f.d * 2, [&](int64_t item) {
    const int64_t i = item % f.tq, head = item / f.tq % f.h, sample = item / f.tq / f.h, shared = f.shared(head);
    const double* own = q + f.q_row(sample, i, head);
    const bool any = masks.sees_any(f, sample, head, i);
    std::vector<double> weights(static_cast<size_t>(f.tk), any ? -INFINITY : 0.0);
    double most = any ? -INFINITY : 0, sum = 0;
    for (int64_t j = 0; any && j < f.tk; ++j) {
      if (!masks.visible(f, sample, head, i, j)) continue;
      double& weight = weights[static_cast<size_t>(j)];
      weight = f.scale * dot(own, k + f.k_row(sample, j, shared), f.d);
      most = std::max(most, weight);
    }
    for (double& w : weights) sum += w = std::exp(w - most);
    double* y = out(call) + f.y_row(sample, i, head);
    std::fill(y, y + f.dv, 0.0);
    for (int64_t j = 0; j < f.tk; ++j) {
      const double w = weights[static_cast<size_t>(j)] / sum, *from = v + f.v_row(sample, j, shared);
      for (int64_t c = 0; c < f.dv && w != 0; ++c) y[c] += w * from[c];
    }
    out(call, 1)[item] = most + std::log(sum);  // items are numbered in the order of [N,H,T]
  });
}

struct GradientArrays {
  const double *dy, *q, *k, *v, *y, *stats;
  double *dq, *dk, *dv;
};

// With P = exp(scores - stats): dV = P' dY, dS = P * (dY V' - rowsum(dY * Y)), dQ = scale dS K, dK = scale dS' Q.
void gradient_of_query(const AttentionForm& f, const AttentionMasks<double>& masks, const GradientArrays& a,
                       int64_t sample, int64_t head, int64_t i) {
  const int64_t row = f.q_row(sample, i, head), y_row = f.y_row(sample, i, head), shared = f.shared(head);
  const double own = dot(a.dy + y_row, a.y + y_row, f.dv), lse = a.stats[(sample * f.h + head) * f.tq + i];
  const bool any = masks.sees_any(f, sample, head, i);
  for (int64_t j = 0; j < f.tk; ++j) {
    if (any && !masks.visible(f, sample, head, i, j)) continue;
    const int64_t other = f.k_row(sample, j, shared), value = f.v_row(sample, j, shared);
    const double score = any ? f.scale * dot(a.q + row, a.k + other, f.d) : 0;
    const double weight = std::exp(score - lse);
    const double gradient = any ? f.scale * weight * (dot(a.dy + y_row, a.v + value, f.dv) - own) : 0;
    for (int64_t c = 0; c < f.dv; ++c) a.dv[value + c] += weight * a.dy[y_row + c];
    for (int64_t c = 0; c < f.d; ++c) {
      a.dq[row + c] += gradient * a.k[other + c];
      a.dk[other + c] += gradient * a.q[row + c];
    }
  }
}

void reference_grad(const ReferenceCall& call) {
  const AttentionForm f = form_of("attention_grad", call);
  const bool packed = f.parts == 3;
  const size_t y = packed ? 2 : 4 + f.masks.size();
  const double *q = in(call, 1), *k = packed ? q + f.part() : in(call, 2);
  double *dq = out(call, 0), *dk = packed ? dq + f.part() : out(call, 1);
  const GradientArrays arrays{in(call, 0),     q,  k,  packed ? k + f.part() : in(call, 3),  in(call, y),
                              in(call, y + 1), dq, dk, packed ? dk + f.part() : out(call, 2)};
  const auto masks = attention_masks<double>(f, 4, [&](size_t i) { return in(call, i); });
  for (size_t i = 0; i < call.outputs.size(); ++i) std::fill_n(out(call, i), call.outputs[i].elements(), 0.0);
  for_each(f.n * f.g, f.tq * f.tk * f.d * 4, [&](int64_t item) {
    const int64_t sample = item / f.g, shared = item % f.g;
    for (int64_t head = shared * (f.h / f.g); head < (shared + 1) * (f.h / f.g); ++head)
      for (int64_t i = 0; i < f.tq; ++i) gradient_of_query(f, masks, arrays, sample, head, i);
  });
}

// There are two matrix products forward and five backward. With a causal mask each costs half.
double product_flops(const AttentionForm& f, bool backward) {
  const double pairs = 2.0 * static_cast<double>(f.n * f.h) * static_cast<double>(f.tq) * static_cast<double>(f.tk);
  const auto d = static_cast<double>(f.d), dv = static_cast<double>(f.dv);
  const double all = pairs * (backward ? 3 * d + 2 * dv : d + dv);
  return f.causal ? all / 2 : all;
}

double flops(const char* op, InTypes in, const Attrs& attrs) {
  return product_flops(attention_form(op, in.size(), attrs, [&](size_t i) -> const Shape& { return in[i].shape; }),
                       op[9] == '_');
}

struct Variant {
  std::string name;
  std::vector<int64_t> q, k, v;
  Attrs attrs;
  std::vector<int64_t> m = {};  // the shape of mask "m"
};

Types inputs_of(const Variant& one) {
  const auto of = [](const std::vector<int64_t>& dims) { return TensorType{DType::kFloat32, Shape(dims)}; };
  Types types{of(one.q), of(one.k), of(one.v)};
  const Shape q = types[0].shape, k = types[1].shape;  // copies: types grows
  for (char letter : masks_of(one.attrs))
    types.push_back(letter == 'q' ? f32({q[0], q[1]}) : letter == 'k' ? f32({k[0], k[1]}) : of(one.m));
  return types;
}

// Attention between different sequences, heads that share keys, and masks, with queries that see nothing; small ones,
// whose gradients are compared with finite differences, and some of more than one tile.
std::vector<Variant> variants() {
  const auto attrs = [](const char* masks, bool causal = false, int64_t window = 0) {
    Attrs made{{"scale", 0.4}};
    if (*masks != 0) made.set("masks", std::string(masks));
    if (causal) made.set("causal", true);
    if (window > 0) made.set("window", window);
    return made;
  };
  // For wide heads: scores around 1, whose weights half precision holds.
  const auto flat = [](Attrs made) {
    made.set("scale", 0.1);
    return made;
  };
  return {{"cross", {2, 3, 2, 4}, {2, 5, 2, 4}, {2, 5, 2, 3}, attrs("")},
          {"cross_causal", {1, 6, 1, 4}, {1, 3, 1, 4}, {1, 3, 1, 4}, attrs("", true)},
          {"groups", {2, 4, 6, 3}, {2, 5, 2, 3}, {2, 5, 2, 4}, attrs("")},
          {"key_mask", {3, 4, 2, 4}, {3, 5, 2, 4}, {3, 5, 2, 4}, attrs("k")},
          {"both_masks", {3, 4, 2, 4}, {3, 4, 2, 4}, {3, 4, 2, 4}, attrs("qk", true)},
          {"mask", {2, 4, 2, 3}, {2, 5, 2, 3}, {2, 5, 2, 3}, attrs("m"), {2, 1, 4, 5}},
          {"mask_of_heads", {2, 4, 4, 3}, {2, 5, 2, 3}, {2, 5, 2, 3}, attrs("mk"), {1, 4, 4, 5}},
          {"window", {2, 7, 2, 3}, {2, 7, 2, 3}, {2, 7, 2, 3}, attrs("", true, 3)},
          {"narrow", {1, 9, 1, 3}, {1, 4, 1, 3}, {1, 4, 1, 3}, attrs("", false, 2)},
          {"tiles_of_groups", {2, 83, 4, 24}, {2, 300, 2, 24}, {2, 300, 2, 40}, attrs("k")},
          {"tiles_of_masks", {2, 150, 2, 16}, {2, 150, 2, 16}, {2, 150, 2, 16}, attrs("qkm", true), {2, 1, 150, 150}},
          {"tiles_of_cross", {2, 70, 4, 32}, {2, 90, 4, 32}, {2, 90, 4, 32}, flat(attrs(""))},
          {"tiles_of_shared", {2, 90, 4, 64}, {2, 70, 2, 64}, {2, 70, 2, 64}, flat(attrs("", true))},
          {"tiles_of_wide", {1, 70, 2, 104}, {1, 90, 1, 104}, {1, 90, 1, 104}, flat(attrs("k", true))},
          {"tiles_of_window", {1, 290, 1, 16}, {1, 290, 1, 16}, {1, 290, 1, 16}, attrs("", true, 20)}};
}

bool is_tiled(const Variant& one) {
  return one.name.starts_with("tiles");
}

OpDef forward_op() {
  OpDef op;
  op.name = "attention";
  op.recompute = Recompute::kCostly;
  op.infer = infer_forward;
  op.gradient = gradient;
  op.reference = reference_forward;
  op.flops = [](InTypes in, InTypes, const Attrs& attrs) { return flops("attention", in, attrs); };
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
  for (const Variant& one : variants()) {
    OpCase made{one.name, inputs_of(one), one.attrs, three,
                is_tiled(one) ? std::vector<size_t>{} : std::vector<size_t>{0, 1, 2}};
    made.fill.resize(made.inputs.size(), "labels:2");
    op.cases.push_back(std::move(made));
  }
  return op;
}

OpDef grad_op() {
  OpDef op;
  op.name = "attention_grad";
  op.recompute = Recompute::kNever;
  op.infer = infer_grad;
  op.reference = reference_grad;
  op.flops = [](InTypes in, InTypes, const Attrs& attrs) { return flops("attention_grad", in, attrs); };
  op.error_units = 32;
  const std::vector<std::string> fill = {"normal", "normal", "normal", "normal", "normal", "value:4"};
  const auto inputs = [](std::initializer_list<int64_t> dims) {
    const TensorType type = f32(dims);
    return Types{type, type, type, type, type, outputs_of(type, type)[1]};
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
  for (const Variant& one : variants()) {
    Types types = inputs_of(one);
    const Types made = outputs_of(types[0], types[2]);
    types.insert(types.begin(), made[0]);
    OpCase with{one.name, types, one.attrs, {"normal", "normal", "normal", "normal"}, {}};
    with.fill.resize(types.size(), "labels:2");
    for (const TensorType& type : made) with.inputs.push_back(type);
    with.fill.insert(with.fill.end(), {"normal", "value:4"});
    op.cases.push_back(std::move(with));
  }
  return op;
}

}  // namespace

std::vector<OpDef> attention_ops() {
  return {forward_op(), grad_op()};
}

}  // namespace plimsoll::engine
