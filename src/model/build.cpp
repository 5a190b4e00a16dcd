// Builds a graph from a checked model, for one batch size and precision.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "model/calls.h"
#include "model/model.h"
#include "model/tree.h"
#include "model/values.h"

namespace plimsoll::engine {
namespace {

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
    for (size_t i = 0; i < program_.inputs.size(); ++i) values_[program_.inputs[i]] = input(i);
    for (size_t i = 0; i < program_.calls.size(); ++i) call(i);
    for (const auto& [statistic, value] : statistics_) b_.update(statistic, value);
    Forward forward;
    for (size_t t : program_.outputs) forward.predictions.push_back(values_[t]);
    if (mode_ != Mode::kPredict) {
      add_losses(forward);
      if (counted_ != kNone) add_mask_factor(forward);
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
    return cast(x, read_in_float32(program_.inputs[i]) ? precision_ : compute_);
  }

  bool read_in_float32(size_t tensor) const {
    return std::any_of(program_.calls.begin(), program_.calls.end(), [&](const LayerCall& call) {
      return layers_[call.layer].float32 &&
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
    const DType dtype = object.operation ? b_.graph().type(values_[call.inputs[0]]).dtype
                        : object.float32 ? precision_
                                         : compute_;
    std::vector<ValueId> inputs, masks, weights;
    for (size_t t : call.inputs) {
      inputs.push_back(converted(values_[t], dtype));
      masks.push_back(mask_of(t));
    }
    for (size_t i = 0; i < call.shape.weights.size(); ++i) weights.push_back(weight(call, i, dtype));
    const LayerValues made =
        object.layer.build(BuildCall{b_, batch_, dtype, training(), object.trainable, static_cast<int64_t>(index),
                                     inputs, masks, weights, call.shape, statistics_});
    assert(made.outputs.size() == call.outputs.size());
    for (size_t i = 0; i < call.outputs.size(); ++i) values_[call.outputs[i]] = made.outputs[i];
    masks_[call.outputs[0]] = made.mask;
  }

  bool training() const { return mode_ == Mode::kTrain || mode_ == Mode::kAccumulate; }

  ValueId mask_of(size_t tensor) const {
    return program_.masks[tensor] == kNoMask ? kNone : masks_[program_.masks[tensor]];
  }

  // Returns a weight in its layer's compute dtype: under a mixed policy, a copy.
  ValueId weight(const LayerCall& call, size_t i, DType dtype) {
    const Weight& weight = model_.weights()[program_.layers[call.layer].first_weight + i];
    const ValueId held = b_.persistent(weight.name, {precision_, weight.shape}, Category::kWeights);
    if (layers_[call.layer].layer.float32_weights) return held;
    const auto temporaries = b_.in_category(Category::kTemporaries);
    return converted(held, dtype);
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
    if (port.sparse_labels && port.target.rank() > 0)
      targets_[i] = b_.add1("reshape", {targets_[i]}, {{"shape", std::vector<int64_t>{batch_ * port.rows_per_sample}}});
    if (data_.sample_weights)
      sample_weights_[i] =
          b_.input(sample_weight_value(port.name), {precision_, Shape{batch_}}, Category::kInputs, false);
    row_weights_[i] = sample_weights_[i];
    if (port.masked) add_mask(i);
  }

  // Turns the mask of an output into a weight per row, multiplied by the sample weight.
  void add_mask(size_t i) {
    const int64_t rows = batch_ * model_.outputs()[i].rows_per_sample;
    const ValueId mask = cast(mask_of(program_.outputs[i]), precision_);
    const ValueId flat = b_.add1("reshape", {mask}, {{"shape", std::vector<int64_t>{rows}}});
    if (counted_ == kNone)  // all losses have the same mask
      counted_ = b_.add1("weighted_sum", {flat, one()}, {{"weighted", false}});
    row_weights_[i] = flat;
    if (sample_weights_[i] == kNone) return;
    const std::vector<int64_t> grid{batch_, rows / batch_};
    ValueId weights = b_.add1("reshape", {sample_weights_[i]}, {{"shape", std::vector<int64_t>{batch_, 1}}});
    weights = b_.add1("broadcast", {weights}, {{"shape", grid}});
    weights = b_.add1("reshape", {weights}, {{"shape", std::vector<int64_t>{rows}}});
    row_weights_[i] = b_.add1("multiply", {flat, weights});
  }

  // Sets the number of rows of the losses. In a whole window, also applies the mask's factor.
  void add_mask_factor(Forward& forward) {
    int64_t rows = 0;
    for (const Port& port : model_.outputs())
      if (port.masked) rows = batch_ * port.rows_per_sample;
    forward.counted = counted_;
    forward.rows = b_.add1("fill", {},
                           {{"shape", std::vector<int64_t>{}},
                            {"value", static_cast<double>(rows)},
                            {"dtype", std::string(name_of(precision_))}});
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

  Tally tally(std::string name, ValueId sum, size_t output, bool weighted, bool larger_is_better = false) const {
    return {std::move(name), sum, static_cast<int>(output), model_.outputs()[output].rows_per_sample, weighted,
            larger_is_better};
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
      rows_[i] = add_loss_rows(b_, *losses[i], forward.predictions[i], targets_[i]);
      const ValueId share = total(rows_[i], factor(name), row_weights_[i]);
      forward.loss = forward.loss == kNone ? share : b_.add1("add", {forward.loss, share});
      if (several) forward.tallies.push_back(tally(name + "_loss", total(rows_[i], one(), row_weights_[i]), i, false));
    }
  }

  void add_metrics(Forward& forward) {
    for (const MetricSpec& metric : program_.objective.metrics) {
      const size_t i = metric.output;
      const auto layer = b_.in_layer(model_.outputs()[i].name);
      const bool as_loss = metric.kind == MetricSpec::Kind::kLoss && metric.loss == *program_.objective.losses[i];
      const ValueId rows = as_loss ? rows_[i] : add_metric_rows(b_, metric, forward.predictions[i], targets_[i]);
      const bool weighted = metric.weighted && data_.sample_weights;
      const ValueId sum = total(rows, one(), weighted ? sample_weights_[i] : kNone);
      forward.tallies.push_back(tally(metric.name, sum, i, weighted, metric.kind != MetricSpec::Kind::kLoss));
    }
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
  std::vector<ValueId> values_, masks_, targets_, sample_weights_, row_weights_, rows_;
  ValueId counted_ = kNone;  // number of rows that are unmasked in the losses
  std::map<ValueId, ValueId> statistics_;
};

}  // namespace

Forward Model::build(GraphBuilder& b, int64_t batch, const Precision& precision, Mode mode,
                     const DataTypes& data) const {
  return GraphWriter(b, *this, *program_, batch, precision, mode, data).run();
}

ValueId append_mask_factor(GraphBuilder& b, ValueId rows, ValueId counted) {
  // At least 1, because counts are integers.
  const ValueId above = b.add1("relu", {b.add1("affine", {counted}, {{"scale", 1.0}, {"offset", -1.0}})});
  return b.add1("unscale", {rows, b.add1("affine", {above}, {{"scale", 1.0}, {"offset", 1.0}})});
}

ValueId append_penalty(GraphBuilder& b, const Model& model, DType precision) {
  ValueId total = kNone;
  for (const Weight& weight : model.weights()) {
    if (!weight.trainable || (weight.l1 == 0 && weight.l2 == 0)) continue;
    const auto layer = b.in_layer(weight.layer);
    const ValueId w = b.persistent(weight.name, {precision, weight.shape}, Category::kWeights);
    const ValueId penalty = b.add1("l1_l2_penalty", {w}, {{"l1", weight.l1}, {"l2", weight.l2}});
    total = total == kNone ? penalty : b.add1("add", {total, penalty});
  }
  return total;
}

}  // namespace plimsoll::engine
