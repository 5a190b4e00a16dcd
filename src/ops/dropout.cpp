// dropout: x, rng {seed, step}, first {index of the first sample in the effective batch} -> y. The mask is a function
// of seed, step, call, sample and element. So dropout is its own gradient, and neither micro-batches nor recompute
// change the mask.
#include "base/philox.h"
#include "ops/families.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

Result<Types> infer(InTypes in, const Attrs& attrs) {
  InferCheck check("dropout", in, attrs);
  if (!check.inputs(3) || !check.floats({0}) || !check.require(in[0].shape.rank() >= 1, "x needs a batch dimension") ||
      !check.require(in[1] == i64({2}), "rng must be i64[2]") ||
      !check.require(in[2] == i64({1}), "first must be i64[1]") || !check.real("rate") || !check.integer("call", 0))
    return check.failed();
  check.require(attrs.real("rate") >= 0 && attrs.real("rate") < 1,
                fmt::format("rate={} must be at least 0 and below 1", attrs.real("rate")));
  return check.outputs({in[0]});
}

void reference(const ReferenceCall& call) {
  const Shape& shape = call.inputs[0].type.shape;
  const int64_t sample = shape.elements() / shape[0];
  const int64_t *rng = call.inputs[1].as<int64_t>(), first = *call.inputs[2].as<int64_t>();
  // The bound is compared in float32 on every backend, so that all backends draw the same mask.
  const auto rate = static_cast<float>(call.attrs.real("rate"));
  const double kept = 1 / (1 - call.attrs.real("rate"));
  const auto word = [](int64_t v) { return static_cast<uint32_t>(v); };
  for_each(shape[0], sample * 8, [&](int64_t n) {
    Philox::Words words{};
    for (int64_t e = 0; e < sample; ++e) {
      if (e % 4 == 0)
        words = Philox::draw(static_cast<uint64_t>(rng[0]),
                             {word(e / 4), word(first + n), word(call.attrs.integer("call")), word(rng[1])});
      const double x = in(call, 0)[n * sample + e];
      out(call)[n * sample + e] = Philox::unit(words[static_cast<size_t>(e % 4)]) >= rate ? x * kept : 0.0;
    }
  });
}

}  // namespace

std::vector<OpDef> dropout_ops() {
  OpDef op;
  op.name = "dropout";
  op.kind = OpKind::kElementwise;
  op.recompute = Recompute::kCheap;
  op.in_place = {{0, 0}};
  op.infer = infer;
  op.gradient = [](const GradientCall& g) -> std::vector<ValueId> {
    if (!g.wants(0)) return {kNone, kNone, kNone};
    return {g.b.add1("dropout", {g.grad(), g.in(1), g.in(2)}, g.node.attrs), kNone, kNone};
  };
  op.reference = reference;
  const std::vector<std::string> fill = {"positive", "step:20260101,7", "step:64,0"};
  const auto attrs = [](double rate, int64_t call) { return Attrs{{"rate", rate}, {"call", call}}; };
  op.cases = {{"half", {f32({4, 33}), i64({2}), i64({1})}, attrs(0.5, 0), fill, {0}},
              {"some", {f32({2, 3, 3, 5}), i64({2}), i64({1})}, attrs(0.2, 3), fill, {0}},
              {"most", {f32({1, 17}), i64({2}), i64({1})}, attrs(0.9, 1), fill, {0}},
              {"none", {f32({3, 5}), i64({2}), i64({1})}, attrs(0.0, 2), fill, {0}}};
  return {op};
}

}  // namespace plimsoll::engine
