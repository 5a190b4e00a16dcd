// random_uniform and random_normal: rng {seed, step}, first {index of the first sample in the effective batch} ->
// numbers of the given shape, whose first dimension is the batch. As in dropout, a number is a function of seed, step,
// call, sample and element, so neither micro-batches nor recompute change it. `stream` tells several draws of one call
// apart.
#include <cmath>
#include <numbers>

#include "base/philox.h"
#include "ops/families.h"
#include "ops/predicates.h"
#include "ops/split.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

constexpr int64_t kMostCalls = int64_t{1} << 24, kMostStreams = 128;

Result<Types> infer(const std::string& name, InTypes in, const Attrs& attrs) {
  InferCheck check(name, in, attrs);
  if (!check.inputs(2) || !check.require(in[0] == i64({2}), "rng must be i64[2]") ||
      !check.require(in[1] == i64({1}), "first must be i64[1]") || !check.has("shape", "list") ||
      !check.has("dtype", "text") || !check.integer("call", 0) || !check.integer("stream", 0) ||
      (attrs.has(kRowsBefore) && !check.integer(kRowsBefore, 0)))
    return check.failed();
  PLIMSOLL_ASSIGN(Shape shape, checked_shape(attrs.list("shape"), name));
  const auto dtype = dtype_from_name(attrs.text("dtype"));
  check.require(dtype && is_floating(*dtype),
                fmt::format("dtype={} must be a floating-point type", attrs.text("dtype")));
  check.require(shape.rank() >= 1, "shape needs a batch dimension");
  check.require(attrs.integer("call") < kMostCalls && attrs.integer("stream") < kMostStreams,
                fmt::format("call={} must be below {}, and stream={} below {}", attrs.integer("call"), kMostCalls,
                            attrs.integer("stream"), kMostStreams));
  return check.outputs({{dtype.value_or(DType::kFloat32), std::move(shape)}});
}

double uniform(const Philox::Words& words, size_t lane) {
  return static_cast<double>(Philox::unit(words[lane]));
}

// Box and Muller's transform: each pair of words gives a radius and an angle.
double normal(const Philox::Words& words, size_t lane) {
  const size_t pair = lane / 2 * 2;
  const double radius = std::sqrt(-2 * std::log(uniform(words, pair) + 0x1p-24));
  const double angle = 2 * std::numbers::pi * uniform(words, pair + 1);
  return radius * (lane % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

OpDef make(const std::string& name, double (*value)(const Philox::Words&, size_t)) {
  OpDef op;
  op.name = name;
  op.kind = OpKind::kElementwise;
  op.recompute = Recompute::kCheap;
  op.infer = [name](InTypes in, const Attrs& attrs) { return infer(name, in, attrs); };
  op.reference = [value](const ReferenceCall& call) {
    const Shape& shape = call.outputs[0].type.shape;
    const int64_t sample = shape.elements() / shape[0];
    const int64_t *rng = call.inputs[0].as<int64_t>(), first = *call.inputs[1].as<int64_t>() + rows_before(call.attrs);
    const auto word = [](int64_t v) { return static_cast<uint32_t>(v); };
    for_each(shape[0], sample * 16, [&](int64_t n) {
      for (int64_t e = 0; e < sample; ++e) {
        const Philox::Words words = Philox::draw(
            static_cast<uint64_t>(rng[0]), {word(e / 4), word(first + n), word(random_call(call.attrs)), word(rng[1])});
        out(call)[n * sample + e] = value(words, static_cast<size_t>(e % 4));
      }
    });
  };
  const auto attrs = [](Ints shape, int64_t call, int64_t stream) {
    return Attrs{{"shape", std::move(shape)}, {"dtype", std::string("f32")}, {"call", call}, {"stream", stream}};
  };
  const std::vector<std::string> fill = {"step:20260101,7", "step:64,0"};
  Attrs piece = attrs({4, 33}, 0, 0);
  piece.set(kRowsBefore, int64_t{5});
  op.cases = {{"rows", {i64({2}), i64({1})}, attrs({4, 33}, 0, 0), fill, {}},
              {"image", {i64({2}), i64({1})}, attrs({2, 3, 3, 5}, 3, 1), fill, {}},
              {"many", {i64({2}), i64({1})}, attrs({3, 700}, 2, 0), fill, {}},
              {"piece", {i64({2}), i64({1})}, piece, fill, {}},
              {"scalars", {i64({2}), i64({1})}, attrs({5}, 1, 2), fill, {}}};
  return op;
}

}  // namespace

std::vector<OpDef> random_ops() {
  OpDef drawn = make("random_uniform", uniform), bell = make("random_normal", normal);
  drawn.error_units = 0;
  return {drawn, bell};
}

}  // namespace plimsoll::engine
