#include "program/phases.h"

#include <fmt/format.h>

#include <set>
#include <string>

#include "autodiff/gradient.h"
#include "model/values.h"
#include "ops/build.h"
#include "ops/op.h"

namespace plimsoll::engine {
namespace {

GraphBuilder builder_of(PhaseName name) {
  Graph graph;
  graph.name = to_text(name);
  return make_builder(std::move(graph));
}

Result<Phase> finish(GraphBuilder& b, PhaseName name, int64_t samples) {
  PLIMSOLL_TRY(b.status());
  Phase phase{name, samples, b.take()};
  PLIMSOLL_TRY(verify(phase.graph));
  return phase;
}

// Returns the model's trainable weights.
std::vector<const Weight*> trainable(const Model& model) {
  std::vector<const Weight*> list;
  for (const Weight& weight : model.weights())
    if (weight.trainable) list.push_back(&weight);
  return list;
}

ValueId weight_value(GraphBuilder& b, const Weight& weight, DType precision) {
  const auto layer = b.in_layer(weight.layer);
  return b.persistent(weight.name, {precision, weight.shape}, Category::kWeights);
}

void store_tally(GraphBuilder& b, const std::string& name, ValueId sum, bool add) {
  const ValueId tally = b.persistent(tally_value(name), b.graph().type(sum), Category::kInputs);
  b.update(tally, add ? b.add1("add", {tally, sum}) : sum);
}

// Copies a scalar. The same scalar may be both the model's loss and a tally, but an update needs a value of its own.
ValueId own_copy(GraphBuilder& b, ValueId scalar) {
  return b.add1("affine", {scalar}, {{"scale", 1.0}, {"offset", 0.0}});
}

ValueId with_penalty(GraphBuilder& b, const Model& model, const Forward& forward, DType precision) {
  const ValueId penalty = append_penalty(b, model, precision, forward);
  return penalty == kNone ? forward.loss : b.add1("add", {forward.loss, penalty});
}

// Returns the gradients of persistent weights. That of a weight which the forward pass replaced is the sum over the
// values that it had.
std::vector<ValueId> weight_gradients(GraphBuilder& b, const Forward& forward, ValueId loss,
                                      const std::vector<ValueId>& weights, ValueId scale) {
  std::vector<ValueId> values;
  std::vector<size_t> counts;
  for (ValueId weight : weights) {
    const auto found = forward.replaced.find(weight);
    const std::vector<ValueId> had = found == forward.replaced.end() ? std::vector{weight} : found->second;
    values.insert(values.end(), had.begin(), had.end());
    counts.push_back(had.size());
  }
  const std::vector<ValueId> each = append_gradients(b, loss, values, scale);
  const auto backward = b.in_stage(Stage::kBackward, Category::kGradients);
  std::vector<ValueId> sums;
  size_t next = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const auto layer = b.in_layer(b.graph().value(weights[i]).layer);
    ValueId sum = kNone;
    for (const size_t end = next + counts[i]; next < end; ++next)
      if (each[next] != kNone) sum = sum == kNone ? each[next] : b.add1("add", {sum, each[next]});
    sums.push_back(sum);
  }
  return sums;
}

ValueId mask_count(GraphBuilder& b, const char* name, DType precision) {
  return b.persistent(name, {precision, Shape{}}, Category::kGradients);
}

// A masked loss is a mean over the unmasked rows of the whole window, and their number is known only at the window's
// end. So gradients and losses are summed as means over all rows, and multiplied by rows / unmasked rows at the end,
// before penalties are added and gradients are clipped.
ValueId window_mask_factor(GraphBuilder& b, DType precision) {
  return append_mask_factor(b, mask_count(b, kMaskRows, precision), mask_count(b, kMaskCounted, precision));
}

// Finishes the window's losses: multiplies them by the factor and adds the penalty. Either may be kNone.
void finish_losses(GraphBuilder& b, const Model& model, const GraphOptions& options, ValueId factor, ValueId penalty) {
  if (penalty != kNone && factor == kNone) return store_tally(b, "loss", penalty, true);
  if (factor == kNone) return;
  for (const Tally& tally : tallies_of(model, Mode::kAccumulate, options)) {
    if (!tally.is_loss) continue;
    const ValueId held =
        b.persistent(tally_value(tally.name), {options.precision.variables, Shape{}}, Category::kInputs);
    const ValueId sum = b.add1("scale", {held, factor});
    b.update(held, penalty != kNone && tally.name == "loss" ? b.add1("add", {sum, penalty}) : sum);
  }
}

// Overwrites the tallies with the sums of a whole window or of an evaluated batch.
void replace_tallies(GraphBuilder& b, ValueId loss, const Forward& forward) {
  store_tally(b, "loss", own_copy(b, loss), false);
  for (const Tally& tally : forward.tallies) store_tally(b, tally.name, own_copy(b, tally.sum), false);
}

// The embedding tables whose update needs more than the sum of the gradients: also the sum over the tokens of their
// squares (token_function). In the forward pass, only lookups read such a table.
std::set<std::string> token_tables(const Model& model, const GraphOptions& options) {
  if (token_function(model.optimizer()).empty() || model.optimizer().accumulation_steps > 1) return {};
  GraphBuilder b = make_builder({});
  model.build(b, 1, options.precision, Mode::kAccumulate, options.data);
  std::set<ValueId> looked_up, others;
  for (const Node& node : b.graph().nodes)
    for (size_t i = 0; i < node.inputs.size(); ++i)
      (node.op == "embedding" && i == 0 ? looked_up : others).insert(node.inputs[i]);
  std::set<std::string> names;
  for (const Weight* weight : trainable(model)) {
    const bool penalized = weight->l1 != 0 || weight->l2 != 0 || weight->regularizer.orthogonal != 0;
    const ValueId value = weight_value(b, *weight, options.precision.variables);
    if (!penalized && looked_up.count(value) != 0 && others.count(value) == 0) names.insert(weight->name);
  }
  return names;
}

// The sum so far in the window.
ValueId token_sum(GraphBuilder& b, const Weight& weight, DType precision) {
  return b.persistent(accumulated_value(weight.name + "/tokens"), {precision, weight.shape}, Category::kGradients);
}

std::vector<ValueId> weight_values(GraphBuilder& b, const std::vector<const Weight*>& weights, DType precision) {
  std::vector<ValueId> values;
  for (const Weight* weight : weights) values.push_back(weight_value(b, *weight, precision));
  return values;
}

}  // namespace

Result<Phase> train_phase(const Model& model, int64_t samples, const GraphOptions& options, bool tail) {
  const PhaseName name{PhaseKind::kTrain, tail};
  GraphBuilder b = builder_of(name);
  const Forward forward = model.build(b, samples, options.precision, Mode::kTrain, options.data);
  PLIMSOLL_TRY(b.status());
  const ValueId loss = with_penalty(b, model, forward, options.precision.variables);
  const std::vector<ValueId> values = weight_values(b, trainable(model), options.precision.variables);
  const ValueId scale = loss_gradient(b, model.optimizer(), options.precision.variables);
  const std::vector<ValueId> gradients = weight_gradients(b, forward, loss, values, scale);
  std::vector<TrainedWeight> trained;
  const auto weights = trainable(model);
  for (size_t i = 0; i < values.size(); ++i)
    trained.push_back({values[i], gradients[i], weights[i]->constraint, forward.current(values[i])});
  append_updates(b, model.optimizer(), trained);

  replace_tallies(b, loss, forward);
  return finish(b, name, samples);
}

Result<Phase> begin_phase(const Model& model, const GraphOptions& options) {
  constexpr PhaseName kName{PhaseKind::kBegin};
  GraphBuilder b = builder_of(kName);
  const auto zero = [&](const std::string& value, const Shape& shape, Category category) {
    const ValueId id = b.persistent(value, {options.precision.variables, shape}, category);
    b.update(
        id,
        b.add1("fill", {},
               {{"shape", shape.dims}, {"value", 0.0}, {"dtype", std::string(name_of(options.precision.variables))}}));
  };
  for (const Weight* weight : trainable(model))
    zero(accumulated_value(weight->name), weight->shape, Category::kGradients);
  const std::set<std::string> tables = token_tables(model, options);
  for (const Weight* weight : trainable(model))
    if (tables.count(weight->name) != 0)
      zero(accumulated_value(weight->name + "/tokens"), weight->shape, Category::kGradients);
  for (const Tally& tally : tallies_of(model, Mode::kAccumulate, options))
    zero(tally_value(tally.name), tally.shape, Category::kInputs);
  if (model.has_masked_losses())
    for (const char* count : {kMaskRows, kMaskCounted}) zero(count, {}, Category::kGradients);
  model.replace_weights(b, options.precision);
  return finish(b, kName, 0);
}

Result<Phase> accumulate_phase(const Model& model, int64_t samples, const GraphOptions& options, bool tail) {
  const PhaseName name{PhaseKind::kAccumulate, tail};
  GraphBuilder b = builder_of(name);
  const Forward forward = model.build(b, samples, options.precision, Mode::kAccumulate, options.data);
  PLIMSOLL_TRY(b.status());
  const auto weights = trainable(model);
  const std::vector<ValueId> values = weight_values(b, weights, options.precision.variables);
  const ValueId scale = loss_gradient(b, model.optimizer(), options.precision.variables);
  const std::vector<ValueId> gradients = append_gradients(b, forward.loss, values, scale);
  const std::set<std::string> tables = token_tables(model, options);
  for (size_t i = 0; i < values.size(); ++i) {
    if (gradients[i] == kNone) continue;
    const auto layer = b.in_layer(weights[i]->layer);
    const ValueId sum = b.persistent(accumulated_value(weights[i]->name),
                                     {options.precision.variables, weights[i]->shape}, Category::kGradients);
    const auto backward = b.in_stage(Stage::kBackward, Category::kGradients);
    b.update(sum, b.add1("add", {sum, gradients[i]}));
    if (tables.count(weights[i]->name) == 0) continue;
    const ValueId of_tokens = append_token_sum(b, model.optimizer(), values[i], gradients[i]);
    if (of_tokens == kNone)
      return fail(ErrorCode::kInternal, fmt::format("the gradient of '{}' is no sum over tokens", weights[i]->name));
    const ValueId held = token_sum(b, *weights[i], options.precision.variables);
    b.update(held, b.add1("add", {held, of_tokens}));
  }
  store_tally(b, "loss", forward.loss, true);
  for (const Tally& tally : forward.tallies) store_tally(b, tally.name, tally.sum, true);
  if (model.has_masked_losses())
    for (const auto& [value, more] : {std::pair{kMaskRows, forward.rows}, std::pair{kMaskCounted, forward.counted}}) {
      const ValueId count = mask_count(b, value, options.precision.variables);
      b.update(count, b.add1("add", {count, more}));
    }
  return finish(b, name, samples);
}

Result<Phase> apply_phase(const Model& model, const GraphOptions& options) {
  constexpr PhaseName kName{PhaseKind::kApply};
  GraphBuilder b = builder_of(kName);
  std::vector<ValueId> values, sums;
  for (const Weight* weight : trainable(model)) {
    values.push_back(weight_value(b, *weight, options.precision.variables));
    sums.push_back(b.persistent(accumulated_value(weight->name), {options.precision.variables, weight->shape},
                                Category::kGradients));
  }
  const ValueId factor = model.has_masked_losses() ? window_mask_factor(b, options.precision.variables) : kNone;
  std::vector<TrainedWeight> trained;
  std::vector<ValueId> extra(values.size(), kNone);
  const ValueId penalty = append_penalty(b, model, options.precision.variables);
  if (penalty != kNone)
    extra = append_gradients(b, penalty, values, loss_gradient(b, model.optimizer(), options.precision.variables));
  finish_losses(b, model, options, factor, penalty);
  const std::set<std::string> tables = token_tables(model, options);
  for (size_t i = 0; i < values.size(); ++i) {
    const Weight& weight = *trainable(model)[i];
    const auto backward = b.in_stage(Stage::kBackward, Category::kGradients);
    ValueId of_tokens = tables.count(weight.name) != 0 ? token_sum(b, weight, options.precision.variables) : kNone;
    if (factor != kNone) {
      sums[i] = b.add1("scale", {sums[i], factor});
      for (int power = token_function(model.optimizer()) == "square" ? 2 : 1; of_tokens != kNone && power > 0; --power)
        of_tokens = b.add1("scale", {of_tokens, factor});
    }
    trained.push_back({values[i], extra[i] == kNone ? sums[i] : b.add1("add", {sums[i], extra[i]}), weight.constraint,
                       kNone, of_tokens});
  }
  append_updates(b, model.optimizer(), trained);
  return finish(b, kName, 0);
}

Result<Phase> evaluate_phase(const Model& model, int64_t samples, const GraphOptions& options, bool tail) {
  const PhaseName name{PhaseKind::kEvaluate, tail};
  GraphBuilder b = builder_of(name);
  const Forward forward = model.build(b, samples, options.precision, Mode::kEvaluate, options.data);
  PLIMSOLL_TRY(b.status());
  const ValueId loss = with_penalty(b, model, forward, options.precision.variables);
  replace_tallies(b, loss, forward);
  return finish(b, name, samples);
}

Result<Phase> predict_phase(const Model& model, int64_t samples, const GraphOptions& options, bool tail) {
  const PhaseName name{PhaseKind::kPredict, tail};
  GraphBuilder b = builder_of(name);
  const Forward forward = model.build(b, samples, options.precision, Mode::kPredict, options.data);
  for (size_t i = 0; i < forward.predictions.size(); ++i) {
    const ValueId own =
        b.add1("cast", {forward.predictions[i]}, {{"dtype", std::string(name_of(options.precision.variables))}});
    b.rename(own, prediction_value(model.outputs()[i].name));
    b.output(own);
  }
  return finish(b, name, samples);
}

std::vector<Tally> tallies_of(const Model& model, Mode mode, const GraphOptions& options) {
  GraphBuilder b = make_builder({});
  std::vector<Tally> list(1);
  list[0].name = "loss";
  list[0].is_loss = list[0].per_batch = true;
  const Forward forward = model.build(b, 1, options.precision, mode, options.data);
  list.insert(list.end(), forward.tallies.begin(), forward.tallies.end());
  return list;
}

}  // namespace plimsoll::engine
