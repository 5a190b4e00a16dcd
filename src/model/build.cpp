// Builds a graph from a checked model, for one batch size and precision.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "model/calls.h"
#include "model/expression.h"
#include "model/metrics.h"
#include "model/model.h"
#include "model/tree.h"
#include "model/values.h"

namespace plimsoll::engine {
namespace {

ValueId persistent_weight(GraphBuilder& b, const Weight& weight, DType dtype) {
  return b.persistent(weight.name, {dtype, weight.shape}, Category::kWeights);
}

class GraphWriter {
 public:
  GraphWriter(GraphBuilder& b, const Model& model, const LayerProgram& program, int64_t batch,
              const Precision& precision, Mode mode, const DataTypes& data)
      : b_(b),
        model_(model),
        layers_(model.architecture().parts().tree.layers),
        program_(program),
        batch_(batch),
        precision_(precision.variables),
        compute_(precision.compute),
        mode_(mode),
        data_(data) {}

  Forward run() {
    values_.assign(program_.tensors.size(), kNone);
    masks_.assign(program_.tensors.size(), kNone);
    find_integers();
    for (size_t i = 0; i < program_.inputs.size(); ++i) values_[program_.inputs[i]] = input(i);
    for (size_t i = 0; i < program_.calls.size(); ++i) call(i);
    for (const auto& [statistic, value] : statistics_) b_.update(statistic, value);
    Forward forward;
    forward.replaced = std::move(replaced_);
    for (size_t t : program_.outputs) {
      const bool floats = is_floating(b_.graph().type(values_[t]).dtype);
      forward.predictions.push_back(floats ? values_[t] : cast(values_[t], precision_));
    }
    if (mode_ != Mode::kPredict) {
      add_losses(forward);
      if (counted_ != kNone && !program_.several_masks) add_mask_factor(forward);
      add_activity_penalty(forward);
      add_metrics(forward);
      // Keras sorts its reports by name.
      std::sort(forward.tallies.begin(), forward.tallies.end(),
                [](const Tally& a, const Tally& b) { return a.name < b.name; });
    }
    return forward;
  }

 private:
  ValueId cast(ValueId value, DType dtype) {
    if (b_.graph().type(value).dtype == dtype) return value;
    return b_.add1("cast", {value}, {{"dtype", std::string(name_of(dtype))}});
  }

  ValueId input(size_t i) {
    const Port& port = model_.inputs()[i];
    const auto layer = b_.in_layer(port.name);
    const DType dtype = i < data_.inputs.size() ? data_.inputs[i] : precision_;
    ValueId x = b_.input(input_value(port.name), {dtype, with_batch(batch_, port.sample)}, Category::kInputs, false);
    // Keras converts to the declared dtype first, so fractions are lost in an integer input.
    if (!is_floating(port.dtype) && is_floating(dtype)) x = cast(x, port.dtype);
    if (!is_floating(port.dtype) && port.dtype != DType::kBool && read_as_integer_[program_.inputs[i]])
      return cast(x, DType::kInt32);
    return cast(x, read_in_float32(program_.inputs[i]) ? precision_ : compute_);
  }

  // Finds the tensors that operations read, directly or after layers that only move elements. Integers among them must
  // not be rounded to a half-precision dtype.
  void find_integers() {
    read_as_integer_.assign(program_.tensors.size(), false);
    for (size_t i = program_.calls.size(); i-- > 0;) {
      const LayerCall& call = program_.calls[i];
      const LayerObject& object = layers_[call.layer];
      const Layer& layer = object.at(call.node);
      if (object.operation || layer.reads_integers || (layer.takes_integers && read_as_integer_[call.outputs[0]]))
        for (size_t t : call.inputs) read_as_integer_[t] = true;
      for (size_t t : call.given_masks)
        if (t != kNoMask) read_as_integer_[t] = true;
    }
  }

  bool read_in_float32(size_t tensor) const {
    return std::any_of(program_.calls.begin(), program_.calls.end(), [&](const LayerCall& call) {
      const LayerObject& object = layers_[call.layer];
      return (object.float32 || object.at(call.node).reads_integers) &&
             std::find(call.inputs.begin(), call.inputs.end(), tensor) != call.inputs.end();
    });
  }

  // Returns a value in the dtype of the layer that reads it. Each conversion is made once per run.
  ValueId converted(ValueId value, DType dtype) {
    if (b_.graph().type(value).dtype == dtype) return value;
    const auto [copy, added] = copies_.try_emplace({value, dtype}, kNone);
    if (added) copy->second = cast(value, dtype);
    return copy->second;
  }

  void call(size_t index) {
    const LayerCall& call = program_.calls[index];
    const LayerObject& object = layers_[call.layer];
    const auto layer = b_.in_layer(object.path);
    const Layer& described = object.at(call.node);
    const DType dtype = object.operation || object.float32 ? precision_ : compute_;
    std::vector<ValueId> inputs, masks, weights;
    for (size_t t : call.inputs) {
      const bool as_is = object.operation || (described.takes_integers && program_.kinds[t] == TensorKind::kInteger);
      inputs.push_back(described.reads_integers ? converted(values_[t], DType::kInt32)
                       : as_is                  ? values_[t]
                                                : converted(values_[t], dtype));
    }
    for (size_t i = 0; i < call.inputs.size(); ++i) masks.push_back(mask_of(call, i));
    if (described.replace_weights && mode_ == Mode::kTrain) replace_weights(call, described);
    for (size_t i = 0; i < call.shape.weights.size(); ++i) weights.push_back(weight(call, i, dtype));
    const LayerValues made =
        described.build(BuildCall{b_, batch_, dtype, training(), object.trainable, static_cast<int64_t>(index), inputs,
                                  masks, weights, call.shape, statistics_, compute_});
    assert(made.outputs.size() == call.outputs.size());
    for (size_t i = 0; i < call.outputs.size(); ++i) values_[call.outputs[i]] = made.outputs[i];
    const bool passes_given =
        described.masking == Masking::kPasses && call.given_masks[described.passed_mask] != kNoMask;
    masks_[call.outputs[0]] = passes_given ? masks[described.passed_mask] : made.mask;
    if (object.layer.activity && mode_ != Mode::kPredict)
      for (ValueId output : made.outputs) add_activity(object.layer.activity, output);
  }

  void add_activity(const ActivityPenalty& activity, ValueId output) {
    const ValueId penalty =
        b_.add1("l1_l2_penalty", {cast(output, precision_)}, {{"l1", activity.l1}, {"l2", activity.l2}});
    activity_ = activity_ == kNone ? penalty : b_.add1("add", {activity_, penalty});
  }

  // As in Keras, the activities are summed over the batch and divided by its size. A micro-batch adds its share.
  void add_activity_penalty(Forward& forward) {
    if (activity_ == kNone) return;
    const ValueId share = b_.add1("scale", {activity_, step_scalar(b_, StepScalar::kSampleShare, precision_)});
    forward.loss = forward.loss == kNone ? share : b_.add1("add", {forward.loss, share});
  }

  bool training() const { return mode_ == Mode::kTrain || mode_ == Mode::kAccumulate; }

  // The mask of an output of the model.
  ValueId mask_of(size_t tensor) const {
    return program_.masks[tensor] == kNoMask ? kNone : masks_[program_.masks[tensor]];
  }

  // The mask of an input of a call.
  ValueId mask_of(const LayerCall& call, size_t input) {
    const size_t given = call.given_masks[input];
    if (given == kNoMask) return call.masks[input] == kNoMask ? kNone : masks_[call.masks[input]];
    const ValueId mask = converted(values_[given], precision_);
    return program_.kinds[given] == TensorKind::kTruth ? mask : (1 - equal({b_, mask}, 0)).id();
  }

  const Weight& weight_of(const LayerCall& call, size_t i) const {
    return model_.weights()[program_.layers[call.layer].first_weight + i];
  }

  // Returns a weight in its layer's compute dtype: under a mixed policy, a copy.
  ValueId weight(const LayerCall& call, size_t i, DType dtype) {
    const ValueId held = held_weight(call, i);
    if (layers_[call.layer].layer.float32_weights) return held;
    const auto temporaries = b_.in_category(Category::kTemporaries);
    return converted(held, dtype);
  }

  // Returns a weight as the calls so far left it.
  ValueId held_weight(const LayerCall& call, size_t i) {
    const ValueId persistent = persistent_weight(b_, weight_of(call, i), precision_);
    const auto found = replaced_.find(persistent);
    if (found != replaced_.end()) return found->second.back();
    const auto statistic = statistics_.find(persistent);
    return statistic == statistics_.end() || !layers_[call.layer].layer.replace_weights ? persistent
                                                                                        : statistic->second;
  }

  // A weight that is trained keeps all its values, because the update of the step adds up their gradients. A second
  // call replaces the value of the first one, and as in Keras no gradient flows through that.
  void replace_weights(const LayerCall& call, const Layer& layer) {
    const auto category = b_.in_category(Category::kTemporaries);
    std::vector<ValueId> weights;
    for (size_t i = 0; i < call.shape.weights.size(); ++i) {
      weights.push_back(held_weight(call, i));
      if (replaced_.count(persistent_weight(b_, weight_of(call, i), precision_)) > 0)
        weights.back() = b_.add1("stop_gradient", {weights.back()});
    }
    const std::vector<ValueId> made = layer.replace_weights(b_, weights);
    for (size_t i = 0; i < made.size(); ++i) {
      if (made[i] == kNone) continue;
      const ValueId persistent = persistent_weight(b_, weight_of(call, i), precision_);
      if (weight_of(call, i).trainable)
        replaced_[persistent].push_back(made[i]);
      else
        statistics_[persistent] = made[i];
    }
  }

  ValueId one() { return step_scalar(b_, StepScalar::kOne, precision_); }
  ValueId factor(const std::string& output) {
    return b_.persistent(loss_factor_value(output), {precision_, Shape{}}, Category::kInputs);
  }

  // Reads the target and sample weights of an output once.
  void read_targets(size_t i) {
    const Port& port = model_.outputs()[i];
    const DType dtype = i < data_.targets.size() ? data_.targets[i] : port.sparse_labels ? DType::kInt32 : precision_;
    const ValueId y =
        b_.input(target_value(port.name), {dtype, with_batch(batch_, port.target)}, Category::kInputs, false);
    targets_[i] = cast(y, port.sparse_labels ? DType::kInt32 : precision_);
    if (port.sparse_labels && port.target.rank() > 0 && !port.padded_labels)
      targets_[i] = b_.add1("reshape", {targets_[i]}, {{"shape", std::vector<int64_t>{batch_ * port.rows_per_sample}}});
    if (data_.sample_weights)
      sample_weights_[i] =
          b_.input(sample_weight_value(port.name), {precision_, Shape{batch_}}, Category::kInputs, false);
    row_weights_[i] = sample_weights_[i];
    if (port.masked && !counts_its_losses(i))
      add_mask(i);
    else if (port.ignored_class || mask_of(program_.outputs[i]) != kNone)  // a sum, which needs no number of rows
      row_weights_[i] = row_weight(i, true).id();
  }

  // As in Keras, the mean of a loss between samples is over those with a loss.
  bool counts_its_losses(size_t i) const { return target_kind(*program_.objective.losses[i]) == TargetKind::kGroups; }

  // Returns the weight of each row: 1 or 0 for masked and ignored rows, times the sample weight.
  Expression row_weight(size_t i, bool with_samples) {
    const Port& port = model_.outputs()[i];
    const int64_t rows = batch_ * port.rows_per_sample;
    Expression weight;
    const auto times = [&](const Expression& other) { weight = weight.id() == kNone ? other : weight * other; };
    if (const ValueId mask = mask_of(program_.outputs[i]); mask != kNone)
      times(Expression(b_, cast(mask, precision_)).reshaped({rows}));
    if (port.ignored_class) times(1 - ignored(i, *port.ignored_class));
    if (counts_its_losses(i)) times(greater({b_, rows_[i]}, 0));
    if (with_samples && sample_weights_[i] != kNone)
      times(Expression(b_, sample_weights_[i])
                .reshaped({batch_, 1})
                .broadcast(Shape{batch_, port.rows_per_sample})
                .reshaped({rows}));
    return weight.id() == kNone ? constant(b_, precision_, {rows}, 1) : weight;
  }

  // Returns 1 for each row with that label.
  Expression ignored(size_t i, int64_t label) const {
    const Expression labels = Expression(b_, targets_[i]).cast(precision_);
    return equal(labels.reshaped({labels.shape().elements()}), static_cast<double>(label));
  }

  // Turns the mask of an output into a weight per row. All losses have the same mask.
  void add_mask(size_t i) {
    row_weights_[i] = row_weight(i, true).id();
    const bool by_weight = program_.objective.losses[i]->reduction == Reduction::kWeightedMean;
    // Keras adds up one weight per sample, not one per row, unless a mask makes it one per row.
    const bool masked = mask_of(program_.outputs[i]) != kNone;
    const int64_t each = by_weight && !masked ? model_.outputs()[i].rows_per_sample : 1;
    if (counted_ != kNone && !program_.several_masks) return;
    const Expression counted = row_weight(i, by_weight);
    counted_ = b_.add1("weighted_sum", {counted.id(), one()}, {{"weighted", false}});
    if (each > 1 && by_weight && data_.sample_weights)
      counted_ = (Expression(b_, counted_) / static_cast<double>(each)).id();
  }

  ValueId number_of_rows(size_t i) {
    const int64_t rows = batch_ * model_.outputs()[i].rows_per_sample;
    return constant(b_, precision_, {}, static_cast<double>(rows)).id();
  }

  // If the losses have different masks, each is divided by its own count here.
  ValueId own_mean(size_t i, ValueId sum) {
    if (!program_.several_masks || !model_.outputs()[i].masked) return sum;
    return b_.add1("scale", {sum, append_mask_factor(b_, number_of_rows(i), counted_)});
  }

  // Sets the number of rows of the losses. In a whole window, also applies the mask's factor.
  void add_mask_factor(Forward& forward) {
    forward.counted = counted_;
    for (size_t i = 0; i < model_.outputs().size(); ++i)
      if (model_.outputs()[i].masked) forward.rows = number_of_rows(i);
    if (mode_ == Mode::kAccumulate) return;
    const ValueId factor = append_mask_factor(b_, forward.rows, forward.counted);
    forward.loss = b_.add1("scale", {forward.loss, factor});
    for (Tally& tally : forward.tallies) tally.sum = b_.add1("scale", {tally.sum, factor});
  }

  ValueId total(ValueId rows, ValueId scale, ValueId weights) {
    std::vector<ValueId> inputs{rows, scale};
    const bool weighted = weights != kNone;
    if (weighted) inputs.push_back(weights);
    return b_.add1("weighted_sum", std::move(inputs), {{"weighted", weighted}});
  }

  Tally tally(std::string name, ValueId sum, size_t output) const {
    Tally made;
    made.name = std::move(name);
    made.sum = sum;
    made.output = static_cast<int>(output);
    made.rows_per_sample = model_.outputs()[output].rows_per_sample;
    made.shape = b_.graph().type(sum).shape;
    return made;
  }

  // Keras adds up what a loss returns. A loss over the whole batch returns one number, which the rows here repeat once
  // per sample; Keras repeats it only to multiply it by sample weights.
  ValueId summed_rows(size_t i) const {
    const Loss& loss = *program_.objective.losses[i];
    const bool once =
        loss.reduction == Reduction::kSum && reduces_batch(loss, model_.outputs()[i].sample) && !data_.sample_weights;
    return once ? (Expression(b_, rows_[i]) / static_cast<double>(batch_)).id() : rows_[i];
  }

  void add_losses(Forward& forward) {
    const auto& losses = program_.objective.losses;
    const auto several =
        std::count_if(losses.begin(), losses.end(), [](const auto& loss) { return loss.has_value(); }) > 1;
    targets_.assign(losses.size(), kNone);
    sample_weights_.assign(losses.size(), kNone);
    row_weights_.assign(losses.size(), kNone);
    rows_.assign(losses.size(), kNone);
    for (size_t i = 0; i < losses.size(); ++i) {
      if (!losses[i]) continue;
      const std::string& name = model_.outputs()[i].name;
      const auto layer = b_.in_layer(name);
      read_targets(i);
      rows_[i] = loss_rows(*losses[i], {b_, forward.predictions[i]}, {b_, targets_[i]}).id();
      if (counts_its_losses(i)) add_mask(i);
      const ValueId rows = summed_rows(i);
      const ValueId share = own_mean(i, total(rows, factor(name), row_weights_[i]));
      forward.loss = forward.loss == kNone ? share : b_.add1("add", {forward.loss, share});
      if (!several) continue;
      forward.tallies.push_back(tally(name + "_loss", own_mean(i, total(rows, one(), row_weights_[i])), i));
      forward.tallies.back().is_loss = true;
      forward.tallies.back().per_batch = model_.outputs()[i].loss_is_sum;
    }
  }

  void add_metrics(Forward& forward) {
    for (const MetricSpec& spec : program_.objective.metrics) {
      const size_t i = spec.output;
      const auto layer = b_.in_layer(model_.outputs()[i].name);
      const bool weighted = spec.weighted && data_.sample_weights;
      const Expression prediction(b_, forward.predictions[i]), target(b_, targets_[i]);
      MetricCall call{prediction.cast(precision_), target, std::nullopt};
      if (weighted) call.weights = Expression(b_, sample_weights_[i]);
      ValueId sum = kNone;
      if (spec.metric.sums) {
        sum = spec.metric.sums(call).id();
      } else {
        const bool as_loss = spec.loss && spec.loss->same_rows(*program_.objective.losses[i]);
        ValueId rows = as_loss     ? rows_[i]
                       : spec.loss ? loss_rows(*spec.loss, prediction, target).id()
                                   : spec.metric.rows(call).id();
        // Unlike in the loss, ignored rows count in the mean: as 0.
        if (spec.loss && spec.loss->ignored_class)
          rows = (Expression(b_, rows) * (1 - ignored(i, *spec.loss->ignored_class))).id();
        // Metrics that are no mean of rows ignore masks, as Keras's do.
        if (mask_of(program_.outputs[i]) != kNone && !spec.metric.of_mean) {
          forward.tallies.push_back(masked_mean(spec, rows, weighted));
          continue;
        }
        sum = total(rows, one(), weighted ? sample_weights_[i] : kNone);
      }
      Tally made = tally(spec.name, sum, i);
      made.rows_per_sample = spec.loss && spec.loss->traced
                                 ? rows_per_sample(*spec.loss, model_.outputs()[i].sample)
                                 : model_.outputs()[i].sample.elements() / model_.outputs()[i].sample.back();
      made.weighted = weighted;
      made.larger_is_better = !spec.loss && spec.metric.larger_is_better;
      made.result = spec.metric.result;
      made.of_mean = spec.metric.of_mean;
      made.elements = spec.metric.elements;
      forward.tallies.push_back(std::move(made));
    }
  }

  // The mean of a metric over the unmasked rows: the device adds up the rows and their weights.
  Tally masked_mean(const MetricSpec& spec, ValueId rows, bool weighted) {
    const int64_t count = b_.graph().type(rows).shape.elements();
    Expression weights = Expression(b_, cast(mask_of(program_.outputs[spec.output]), precision_)).reshaped({count});
    if (weighted)
      weights = weights * Expression(b_, sample_weights_[spec.output])
                              .reshaped({batch_, 1})
                              .broadcast(Shape{batch_, count / batch_})
                              .reshaped({count});
    const Expression sums = joined({Expression(b_, total(rows, one(), weights.id())).reshaped({1}),
                                    Expression(b_, total(weights.id(), one(), kNone)).reshaped({1})});
    Tally made = tally(spec.name, sums.id(), spec.output);
    made.larger_is_better = !spec.loss && spec.metric.larger_is_better;
    made.result = [](std::span<const double> totals) { return totals[1] == 0 ? 0 : totals[0] / totals[1]; };
    return made;
  }

  GraphBuilder& b_;
  const Model& model_;
  const std::vector<LayerObject>& layers_;
  const LayerProgram& program_;
  const int64_t batch_;
  const DType precision_, compute_;
  std::map<std::pair<ValueId, DType>, ValueId> copies_;
  const Mode mode_;
  const DataTypes& data_;
  std::vector<bool> read_as_integer_;  // per tensor
  std::vector<ValueId> values_, masks_, targets_, sample_weights_, row_weights_, rows_;
  ValueId activity_ = kNone;  // sum of the activity penalties of all calls
  ValueId counted_ = kNone;   // number of rows that are unmasked in the losses
  std::map<ValueId, ValueId> statistics_;
  std::map<ValueId, std::vector<ValueId>> replaced_;
};

}  // namespace

void Model::replace_weights(GraphBuilder& b, const Precision& precision) const {
  const auto category = b.in_category(Category::kTemporaries);
  for (size_t l = 0; l < program_->layers.size(); ++l) {
    const LayerObject& object = architecture().parts().tree.layers[l];
    const ShapedLayer& layer = program_->layers[l];
    if (!layer.called || !object.layer.replace_weights) continue;
    const auto name = b.in_layer(object.path);
    std::vector<ValueId> weights;
    for (size_t i = 0; i < layer.weights.size(); ++i)
      weights.push_back(persistent_weight(b, weights_[layer.first_weight + i], precision.variables));
    const std::vector<ValueId> made = object.layer.replace_weights(b, weights);
    for (size_t i = 0; i < made.size(); ++i)
      if (made[i] != kNone) b.update(weights[i], made[i]);
  }
}

Forward Model::build(GraphBuilder& b, int64_t batch, const Precision& precision, Mode mode,
                     const DataTypes& data) const {
  return GraphWriter(b, *this, *program_, batch, precision, mode, data).run();
}

ValueId append_mask_factor(GraphBuilder& b, ValueId rows, ValueId counted) {
  const Expression count(b, counted), empty = equal(count, 0);
  // Without any row everything is 0, and the factor stays finite.
  return (Expression(b, rows) / (count + empty)).id();
}

namespace {

// keras/src/regularizers/regularizers.py, OrthogonalRegularizer. The diagonal of the products holds the squared norms.
Expression orthogonal_penalty(const Regularizer& regularizer, const Expression& w) {
  constexpr double kLeastSquare = 1e-12;
  const int64_t along = regularizer.rows ? 1 : 0;
  const Expression squares = maximum(sum(call("square", w), {along}), kLeastSquare);
  const Expression unit = w * call("rsqrt", squares);
  const Expression products =
      unit.apply("matmul", unit, {{"transpose_a", !regularizer.rows}, {"transpose_b", regularizer.rows}});
  const auto count = static_cast<double>(products.shape()[0]);
  const Expression total = sum(call("abs", products), {0, 1}) - sum(call("square", unit), {0, 1});
  return (total * (regularizer.orthogonal / (count * (count - 1)))).reshaped({});
}

}  // namespace

ValueId append_penalty(GraphBuilder& b, const Model& model, DType precision, const Forward& forward) {
  ValueId total = kNone;
  const auto add = [&](ValueId penalty) { total = total == kNone ? penalty : b.add1("add", {total, penalty}); };
  for (const Weight& weight : model.weights()) {
    if (!weight.trainable) continue;
    const auto layer = b.in_layer(weight.layer);
    const auto held = [&] { return forward.current(persistent_weight(b, weight, precision)); };
    if (weight.l1 != 0 || weight.l2 != 0)
      add(b.add1("l1_l2_penalty", {held()}, {{"l1", weight.l1}, {"l2", weight.l2}}));
    if (weight.regularizer.orthogonal != 0) add(orthogonal_penalty(weight.regularizer, {b, held()}).id());
  }
  return total;
}

}  // namespace plimsoll::engine
