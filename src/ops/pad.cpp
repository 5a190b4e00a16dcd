// pad extends each dimension by a constant, by its reflection (reflect leaves the edge out, symmetric repeats it) or by
// its edge. pad_grad adds to each element of dx the gradients of all places that show it.
#include "ops/families.h"
#include "ops/strided.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

// sign is 1 for pad and -1 for pad_grad, whose input has the padded shape.
Result<Types> infer(const std::string& name, int64_t sign, InTypes in, const Attrs& attrs) {
  InferCheck check(name, in, attrs);
  if (!check.inputs(1) || !check.list("pads", 2 * in[0].shape.rank(), 0) || !check.has("mode", "text") ||
      !check.optional_real("value"))
    return check.failed();
  const bool number = is_floating(in[0].dtype) || (in[0].dtype == DType::kInt32 && sign > 0);
  check.require(number, "takes floating-point numbers, and pad takes i32 too");
  const std::string& mode = attrs.text("mode");
  check.require(mode == "constant" || mode == "reflect" || mode == "symmetric" || mode == "edge",
                fmt::format("mode=\"{}\" must be constant, reflect, symmetric or edge", mode));
  const auto& pads = attrs.list("pads");
  Shape y = in[0].shape;
  for (size_t d = 0; d < y.rank(); ++d) {
    y.dims[d] += sign * (pads[2 * d] + pads[2 * d + 1]);
    const int64_t extent = sign > 0 ? in[0].shape[d] : y[d];
    const int64_t most = mode == "reflect" ? extent - 1 : extent;
    const bool fits = mode == "constant" || mode == "edge" || (pads[2 * d] <= most && pads[2 * d + 1] <= most);
    check.require(y[d] > 0 && fits, fmt::format("pads {} and {} do not fit dimension {} of {} elements", pads[2 * d],
                                                pads[2 * d + 1], d, in[0].shape[d]));
  }
  return check.outputs({{in[0].dtype, std::move(y)}});
}

// Calls body(i, at) for each element of the padded shape, with the element of `x` that it shows or -1.
template <typename Body>
void for_padded(const Shape& x, const Shape& padded, const Attrs& attrs, Body body) {
  const auto strides = row_major_strides(x);
  const auto& pads = attrs.list("pads");
  std::vector<std::vector<int64_t>> sources;
  for (size_t d = 0; d < x.rank(); ++d)
    sources.push_back(padded_sources(x[d], pads[2 * d], pads[2 * d + 1], attrs.text("mode")));
  for_each(padded.elements(), 8, [&](int64_t i) {
    int64_t at = 0, rest = i;
    for (size_t d = x.rank(); d-- > 0; rest /= padded[d]) {
      const int64_t from = sources[d][static_cast<size_t>(rest % padded[d])];
      at = from < 0 || at < 0 ? -1 : at + from * strides[d];
    }
    body(i, at);
  });
}

void reference_pad(const ReferenceCall& call) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  const double value = call.attrs.real_or("value", 0);
  const auto copy = [&](auto zero) {
    using T = decltype(zero);
    for_padded(x.type.shape, y.type.shape, call.attrs, [&](int64_t i, int64_t at) {
      static_cast<T*>(y.data)[i] = at < 0 ? static_cast<T>(value) : static_cast<const T*>(x.data)[at];
    });
  };
  x.type.dtype == DType::kInt32 ? copy(int32_t{}) : copy(double{});
}

void reference_grad(const ReferenceCall& call) {
  const Shape &padded = call.inputs[0].type.shape, &x = call.outputs[0].type.shape;
  std::vector<int64_t> places(static_cast<size_t>(padded.elements()));
  for_padded(x, padded, call.attrs, [&](int64_t i, int64_t at) { places[static_cast<size_t>(i)] = at; });
  std::fill_n(out(call), x.elements(), 0.0);
  for (int64_t i = 0; i < padded.elements(); ++i)
    if (places[static_cast<size_t>(i)] >= 0) out(call)[places[static_cast<size_t>(i)]] += in(call, 0)[i];
}

OpDef make(const std::string& name, int64_t sign) {
  OpDef op;
  op.name = name;
  op.recompute = Recompute::kCheap;
  op.infer = [name, sign](InTypes in, const Attrs& attrs) { return infer(name, sign, in, attrs); };
  op.error_units = sign > 0 ? 0 : 8;
  struct Problem {
    const char* name;
    Ints shape, pads;
    const char* mode;
    double value;
  };
  for (const Problem& p :
       std::initializer_list<Problem>{{"zeros", {2, 3, 4, 5}, {0, 0, 1, 2, 3, 0, 0, 0}, "constant", 0},
                                      {"value", {3, 17}, {1, 0, 2, 1}, "constant", 2.5},
                                      {"reflect", {2, 4, 5, 3}, {0, 0, 3, 2, 1, 4, 0, 0}, "reflect", 0},
                                      {"symmetric", {3, 4}, {3, 1, 2, 4}, "symmetric", 0},
                                      {"edge", {2, 3, 2}, {1, 0, 4, 5, 2, 2}, "edge", 0},
                                      {"none", {2, 3}, {0, 0, 0, 0}, "reflect", 0}}) {
    Shape shape{p.shape};
    for (size_t d = 0; sign < 0 && d < shape.rank(); ++d) shape.dims[d] += p.pads[2 * d] + p.pads[2 * d + 1];
    op.cases.push_back({p.name,
                        {{DType::kFloat32, shape}},
                        {{"pads", p.pads}, {"mode", std::string(p.mode)}, {"value", p.value}},
                        {"normal"},
                        {0}});
  }
  return op;
}

}  // namespace

std::vector<OpDef> pad_ops() {
  OpDef pad = make("pad", 1), grad = make("pad_grad", -1);
  pad.reference = reference_pad;
  pad.gradient = [](const GradientCall& g) -> std::vector<ValueId> {
    if (!g.wants(0)) return {kNone};
    return {g.b.add1("pad_grad", {g.grad()}, g.node.attrs)};
  };
  pad.cases.push_back({"integers",
                       {i32({3, 4})},
                       {{"pads", Ints{1, 1, 0, 2}}, {"mode", std::string("constant")}, {"value", -1.0}},
                       {"labels:9"},
                       {}});
  grad.reference = reference_grad;
  grad.gradient = [](const GradientCall& g) -> std::vector<ValueId> {
    if (!g.wants(0)) return {kNone};
    Attrs attrs = g.node.attrs;
    attrs.set("value", 0.0);  // the constant has no part in the gradient
    return {g.b.add1("pad", {g.grad()}, attrs)};
  };
  return {pad, grad};
}

}  // namespace plimsoll::engine
