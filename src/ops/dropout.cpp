// dropout: x, rng {seed, step}, first {index of the first sample in the effective batch} -> y. The mask is a function
// of seed, step, call, sample and element. So dropout is its own gradient, and neither micro-batches nor recompute
// change the mask. Elements may share a decision: element e of a sample takes that of number (e / noise_inner) %
// noise_size, so that a whole channel is dropped, or a whole sample; with `shared`, all samples take the same ones.
#include "base/philox.h"
#include "ops/families.h"
#include "ops/predicates.h"
#include "ops/split.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

Result<Types> infer(InTypes in, const Attrs& attrs) {
  InferCheck check("dropout", in, attrs);
  if (!check.inputs(3) || !check.floats({0}) || !check.require(in[0].shape.rank() >= 1, "x needs a batch dimension") ||
      !check.require(in[1] == i64({2}), "rng must be i64[2]") ||
      !check.require(in[2] == i64({1}), "first must be i64[1]") || !check.real("rate") || !check.integer("call", 0) ||
      (attrs.has(kRowsBefore) && !check.integer(kRowsBefore, 0)) || !check.optional_flag("shared"))
    return check.failed();
  if (attrs.has("noise_inner") || attrs.has("noise_size")) {
    if (!check.integer("noise_inner", 1) || !check.integer("noise_size", 1)) return check.failed();
    const int64_t inner = attrs.integer("noise_inner"), size = attrs.integer("noise_size");
    const int64_t sample = in[0].shape[0] == 0 ? 0 : in[0].shape.elements() / in[0].shape[0];
    check.require(
        sample % inner == 0 && sample / inner % size == 0,
        fmt::format("noise_inner={} times noise_size={} must divide the {} elements of a sample", inner, size, sample));
  }
  check.require(attrs.real("rate") >= 0 && attrs.real("rate") < 1,
                fmt::format("rate={} must be at least 0 and below 1", attrs.real("rate")));
  return check.outputs({in[0]});
}

void reference(const ReferenceCall& call) {
  const Shape& shape = call.inputs[0].type.shape;
  const int64_t sample = shape.elements() / shape[0];
  const int64_t *rng = call.inputs[1].as<int64_t>(), first = *call.inputs[2].as<int64_t>() + rows_before(call.attrs);
  // The bound is compared in float32 on every backend, so that all backends draw the same mask.
  const auto rate = static_cast<float>(call.attrs.real("rate"));
  const double kept = 1 / (1 - call.attrs.real("rate"));
  const auto word = [](int64_t v) { return static_cast<uint32_t>(v); };
  const DropoutNoise noise(call.attrs, sample);
  for_each(shape[0], sample * 8, [&](int64_t n) {
    for (int64_t e = 0; e < sample; ++e) {
      const int64_t i = e / noise.inner % noise.size, s = noise.shared ? 0 : first + n;
      const Philox::Words words = Philox::draw(static_cast<uint64_t>(rng[0]),
                                               {word(i / 4), word(s), word(call.attrs.integer("call")), word(rng[1])});
      const double x = in(call, 0)[n * sample + e];
      out(call)[n * sample + e] = Philox::unit(words[static_cast<size_t>(i % 4)]) >= rate ? x * kept : 0.0;
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
  Attrs piece = attrs(0.5, 0);
  piece.set(kRowsBefore, int64_t{5});
  op.cases.push_back({"piece", {f32({4, 33}), i64({2}), i64({1})}, piece, fill, {0}});
  const auto noise = [&](int64_t inner, int64_t size, bool shared) {
    Attrs all = attrs(0.4, 5);
    all.set("noise_inner", inner);
    all.set("noise_size", size);
    all.set("shared", shared);
    return all;
  };
  const std::vector<TensorType> image = {f32({5, 3, 4, 10}), i64({2}), i64({1})};
  op.cases.push_back({"channels", image, noise(1, 10, false), fill, {0}});
  op.cases.push_back({"channels_first", image, noise(40, 3, false), fill, {0}});
  op.cases.push_back({"samples", image, noise(120, 1, false), fill, {0}});
  Attrs piece_of_channels = noise(1, 10, false);
  piece_of_channels.set(kRowsBefore, int64_t{7});
  op.cases.push_back({"piece_of_channels", image, piece_of_channels, fill, {0}});
  op.cases.push_back({"shared", image, noise(10, 12, true), fill, {0}});
  op.cases.push_back({"shared_whole", image, noise(1, 120, true), fill, {0}});
  op.cases.push_back({"wide_channels", {f32({2, 3, 1500}), i64({2}), i64({1})}, noise(1, 1500, false), fill, {0}});
  op.cases.push_back({"large_samples", {f32({3, 40, 100}), i64({2}), i64({1})}, noise(100, 40, false), fill, {0}});
  return {op};
}

}  // namespace plimsoll::engine
