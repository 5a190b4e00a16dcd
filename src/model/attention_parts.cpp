#include "model/attention_parts.h"

#include <fmt/format.h>

#include <array>

#include "model/values.h"
#include "ops/build.h"

namespace plimsoll::engine {
namespace {

constexpr double kLowScore = -1e9, kLowHalfScore = -3e4;  // of keras/src/layers/activations/softmax.py

class ArgumentReader {
 public:
  explicit ArgumentReader(Config& c) : c_(c), arguments_(c.call(), c.where(), c.issues()) {}

  std::optional<size_t> tensor(const char* name, size_t position, bool needed) {
    const Json* value = arguments_.value(name, position);
    const auto index = value ? arguments_.tensor(*value) : std::nullopt;
    if (value && !index) c_.issues().unknown(fmt::format("{}: called with {}={}", c_.where(), name, shown(*value)));
    if (!value && needed) c_.issues().reject(fmt::format("{}: its call must have a {}", c_.where(), name));
    return index;
  }

  GivenMask mask(const char* name, size_t position) {
    GivenMask mask;
    const Json* value = arguments_.value(name, position);
    if (!value) return mask;
    mask.tensor = arguments_.tensor(*value);
    if (!mask.tensor) mask.constant = read_constant(*value);
    if (!mask) c_.issues().unknown(fmt::format("{}: called with {}={}", c_.where(), name, arguments_.shown(*value)));
    return mask;
  }

  bool flag(const char* name) { return call_flag(c_, arguments_, name); }

  void finish() { arguments_.finish(); }

 private:
  Config& c_;
  Arguments arguments_;
};

std::vector<int64_t> dims_of(const BuildCall& call, ValueId x) {
  return call.shape(x).dims;
}

ValueId moved(const BuildCall& call, ValueId x, std::vector<int64_t> perm) {
  return call.add("transpose", {x}, {{"perm", std::move(perm)}});
}

ValueId reshaped(const BuildCall& call, ValueId x, std::vector<int64_t> dims) {
  return Expression(call.b, x).reshaped(std::move(dims)).id();
}

// [N,T,G,D] as matrices [N*H,T,D], where each head is repeated H / G times.
ValueId head_matrices(const BuildCall& call, ValueId x, int64_t heads) {
  const std::vector<int64_t> d = dims_of(call, x);
  ValueId made = moved(call, x, {0, 2, 1, 3});
  if (heads != d[2]) {
    made = reshaped(call, made, {d[0], d[2], 1, d[1] * d[3]});
    made = broadcast_to(call.b, made, Shape{d[0], d[2], heads / d[2], d[1] * d[3]});
  }
  return reshaped(call, made, {d[0] * heads, d[1], d[3]});
}

Expression positions(const BuildCall& call, int64_t queries, int64_t keys, int64_t axis) {
  const std::vector<int64_t> dims{1, 1, queries, keys};
  return {call.b, call.add("iota", {},
                           {{"shape", dims}, {"axis", axis}, {"dtype", std::string(name_of(wide(call.precision)))}})};
}

}  // namespace

bool call_flag(Config& config, Arguments& arguments, const char* name) {
  constexpr size_t kByNameOnly = 1000;  // no call has as many arguments by position
  const Json* value = arguments.value(name, kByNameOnly);
  if (value && !value->is_boolean())
    config.issues().unknown(fmt::format("{}: called with {}={}", config.where(), name, arguments.shown(*value)));
  return value && value->is_boolean() && value->get<bool>();
}

AttentionArguments read_attention_arguments(Config& config) {
  ArgumentReader reader(config);
  AttentionArguments made;
  made.query = reader.tensor("query", 0, true).value_or(0);
  made.value = reader.tensor("value", 1, true).value_or(0);
  made.key = reader.tensor("key", 2, false);
  made.query_mask = reader.mask("query_mask", 3);
  made.value_mask = reader.mask("value_mask", 4);
  made.key_mask = reader.mask("key_mask", 5);
  made.attention_mask = reader.mask("attention_mask", 6);
  made.scores = reader.flag("return_attention_scores");
  made.causal = reader.flag("use_causal_mask");
  reader.finish();
  for (const auto& [name, mask] : {std::pair{"query_mask", &made.query_mask}, std::pair{"value_mask", &made.value_mask},
                                   std::pair{"key_mask", &made.key_mask}})
    if (mask->constant) config.issues().unknown(fmt::format("{}: called with a constant as {}", config.where(), name));
  return made;
}

ValueId both(const BuildCall& call, ValueId a, ValueId b) {
  if (a == kNone || b == kNone) return a == kNone ? b : a;
  const DType dtype = wide(call.precision);
  return (Expression(call.b, a).cast(dtype) * Expression(call.b, b).cast(dtype)).id();
}

ValueId as_mask(const BuildCall& call, size_t input) {
  return (1 - equal(Expression(call.b, call.inputs[input]).cast(wide(call.precision)), 0)).id();
}

std::string check_pair_mask(const Shape& mask, bool batched, int64_t heads, int64_t queries, int64_t keys) {
  const size_t rank = mask.rank();
  const bool fits = rank >= 2 && rank <= 4 && (mask[rank - 1] == keys || mask[rank - 1] == 1) &&
                    (mask[rank - 2] == queries || mask[rank - 2] == 1) && (rank < 3 || batched || mask[0] == 1) &&
                    (!batched || rank >= 3) && (rank < 4 || mask[1] == heads || mask[1] == 1);
  if (fits) return "";
  return fmt::format("an attention_mask [{}] for {} queries and {} keys", to_text(mask), queries, keys);
}

ValueId pair_mask(const BuildCall& call, const GivenMask& mask, int64_t queries, int64_t keys) {
  if (!mask) return kNone;
  ValueId made = kNone;
  if (mask.tensor) {
    made = as_mask(call, *mask.tensor);
  } else {
    const DType dtype = wide(call.precision);
    std::vector<double> truths;
    for (double value : mask.constant->values) truths.push_back(value != 0 ? 1 : 0);
    made = call.add("constant", {}, constant_attrs(mask.constant->shape, dtype, truths));
  }
  std::vector<int64_t> dims = dims_of(call, made);
  // Missing dimensions are those of the heads, then of the batch.
  while (dims.size() < 4) dims.insert(dims.end() - 2, 1);
  made = reshaped(call, made, dims);
  return broadcast_to(call.b, made, Shape{dims[0], dims[1], queries, keys});
}

Expression visible_pairs(const BuildCall& call, const Visibility& visible, int64_t queries, int64_t keys) {
  const DType dtype = wide(call.precision);
  Expression made;
  const auto times = [&](const Expression& other) { made = made.id() == kNone ? other : made * other; };
  const auto mask = [&](ValueId id, std::vector<int64_t> dims) {
    dims[0] = call.shape(id)[0];
    times(Expression(call.b, id).cast(dtype).reshaped(std::move(dims)));
  };
  if (visible.pairs != kNone) times(Expression(call.b, visible.pairs).cast(dtype));
  if (visible.queries != kNone) mask(visible.queries, {0, 1, queries, 1});
  if (visible.keys != kNone) mask(visible.keys, {0, 1, 1, keys});
  const auto place = [&](int64_t axis) { return positions(call, queries, keys, axis); };
  if (visible.causal) times(1 - greater(place(3) - place(2), 0));
  if (visible.window > 0)
    times(1 - greater(engine::call("abs", place(3) - place(2)), static_cast<double>(visible.window - 1)));
  return made;
}

ValueId attend(const BuildCall& call, ValueId q, ValueId k, ValueId v, double scale, const Visibility& visible) {
  Attrs attrs{{"scale", scale}};
  if (visible.causal) attrs.set("causal", true);
  if (visible.window > 0) attrs.set("window", visible.window);
  std::vector<ValueId> inputs{q, k, v};
  std::string masks;
  for (const auto& [letter, mask] :
       {std::pair{'q', visible.queries}, std::pair{'k', visible.keys}, std::pair{'m', visible.pairs}}) {
    if (mask == kNone) continue;
    masks += letter;
    inputs.push_back(mask);
  }
  if (!masks.empty()) attrs.set("masks", masks);
  return call.b.add("attention", std::move(inputs), std::move(attrs))[0];
}

ValueId dropped_weights(const BuildCall& call, ValueId weights, double rate) {
  if (!call.training || rate == 0) return weights;
  if (rate == 1) return Expression(call.b, weights).affine(0, 0).id();
  const ValueId rng = step_scalar(call.b, StepScalar::kRandom, call.precision);
  const ValueId first = step_scalar(call.b, StepScalar::kFirstSample, call.precision);
  return call.add("dropout", {weights, rng, first}, {{"rate", rate}, {"call", call.call}});
}

std::pair<ValueId, ValueId> attend_with_weights(const BuildCall& call, ValueId q, ValueId k, ValueId v, double scale,
                                                const Visibility& visible, double dropout) {
  const std::vector<int64_t> d = dims_of(call, q);
  const int64_t n = d[0], queries = d[1], heads = d[2], keys = dims_of(call, k)[1], width = dims_of(call, v)[3];
  const ValueId scaled = Expression(call.b, q).affine(scale, 0).id();
  const ValueId products = call.add("batch_matmul", {head_matrices(call, scaled, heads), head_matrices(call, k, heads)},
                                    {{"transpose_b", true}});
  Expression scores = Expression(call.b, products).reshaped({n, heads, queries, keys});
  Expression seen;
  if (visible.any()) {
    seen = visible_pairs(call, visible, queries, keys).cast(scores.type().dtype).broadcast(scores.shape());
    const bool half = scores.type().dtype == DType::kFloat16;
    scores = select(seen, scores, scores.filled(half ? kLowHalfScore : kLowScore));
  }
  // A query that sees nothing has weights of 0 here, and equal ones in attend().
  Expression made_weights = scores.apply("softmax");
  if (visible.any()) made_weights = select(seen, made_weights, made_weights.filled(0));
  const ValueId weights = made_weights.id();
  const ValueId kept = reshaped(call, dropped_weights(call, weights, dropout), {n * heads, queries, keys});
  const ValueId made = call.add("batch_matmul", {kept, head_matrices(call, v, heads)});
  return {moved(call, reshaped(call, made, {n, heads, queries, width}), {0, 2, 1, 3}), weights};
}

double read_attention_dropout(Config& config) {
  const double rate = config.real("dropout", 0);
  if (rate < 0 || rate > 1)
    config.issues().reject(fmt::format("{}: 'dropout' must be from 0 to 1, got {}", config.where(), rate));
  config.ignore({"seed"});
  return rate;
}

}  // namespace plimsoll::engine
