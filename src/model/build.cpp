// From a checked model to a graph, for one batch size and precision.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "model/model.h"
#include "model/plan.h"
#include "model/values.h"

namespace plimsoll {
namespace {

Shape with_batch(int64_t batch, const Shape& sample) {
  std::vector<int64_t> dims{batch};
  dims.insert(dims.end(), sample.dims.begin(), sample.dims.end());
  return Shape(std::move(dims));
}

class GraphWriter {
 public:
  GraphWriter(GraphBuilder& b, const Model& model, const ModelPlan& plan, int64_t batch, const Precision& precision,
              Mode mode, const DataTypes& data)
      : b_(b),
        model_(model),
        plan_(plan),
        batch_(batch),
        precision_(precision.variables),
        compute_(precision.compute),
        mode_(mode),
        data_(data) {}

  Forward run() {
    values_.assign(plan_.tensors.size(), kNone);
    for (size_t i = 0; i < plan_.inputs.size(); ++i) values_[plan_.inputs[i]] = input(i);
    for (size_t i = 0; i < plan_.calls.size(); ++i) call(i);
    for (const auto& [statistic, value] : statistics_) b_.update(statistic, value);
    Forward forward;
    for (size_t t : plan_.outputs) forward.predictions.push_back(values_[t]);
    if (mode_ != Mode::kPredict) {
      add_losses(forward);
      add_metrics(forward);
      // Keras reports by name.
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
    // Keras converts to the declared type first: fractions are lost in an integer input.
    if (!is_floating(port.dtype) && is_floating(dtype)) x = cast(x, port.dtype);
    return cast(x, read_in_float32(plan_.inputs[i]) ? precision_ : compute_);
  }

  bool read_in_float32(size_t tensor) const {
    return std::any_of(plan_.calls.begin(), plan_.calls.end(), [&](const LayerCall& call) {
      return plan_.layers[call.layer].float32 &&
             std::find(call.inputs.begin(), call.inputs.end(), tensor) != call.inputs.end();
    });
  }

  // A value in the dtype of a layer that reads it; converted once a run.
  ValueId converted(ValueId value, DType dtype) {
    if (b_.graph().type(value).dtype == dtype) return value;
    const auto [copy, added] = copies_.try_emplace({value, dtype}, kNone);
    if (added) copy->second = cast(value, dtype);
    return copy->second;
  }

  void call(size_t index) {
    const LayerCall& call = plan_.calls[index];
    const LayerObject& object = plan_.layers[call.layer];
    const auto layer = b_.in_layer(object.path);
    const DType dtype = object.float32 ? precision_ : compute_;
    std::vector<ValueId> inputs, weights;
    for (size_t t : call.inputs) inputs.push_back(converted(values_[t], dtype));
    for (size_t i = 0; i < object.specs.size(); ++i) weights.push_back(weight(object, i, dtype));
    values_[call.output] = object.layer.build(BuildCall{b_, batch_, dtype, mode_ == Mode::kTrain, object.trainable,
                                                        static_cast<int64_t>(index), inputs, weights, statistics_});
  }

  // A weight as its layer computes with it: under a mixed policy a copy in the compute dtype.
  ValueId weight(const LayerObject& object, size_t i, DType dtype) {
    const ValueId held = b_.persistent(model_.weights()[object.first_weight + i].name,
                                       {precision_, object.specs[i].shape}, Category::kWeights);
    if (object.layer.float32_weights) return held;
    const auto temporaries = b_.in_category(Category::kTemporaries);
    return converted(held, dtype);
  }

  ValueId one() { return step_scalar(b_, StepScalar::kOne, precision_); }
  ValueId factor(const std::string& output) {
    return b_.persistent(loss_factor_value(output), {precision_, Shape{}}, Category::kInputs);
  }

  // Target and sample weights of an output, read once.
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
  }

  ValueId total(ValueId rows, ValueId scale, size_t output, bool weighted) {
    std::vector<ValueId> inputs{rows, scale};
    weighted = weighted && data_.sample_weights;
    if (weighted) inputs.push_back(sample_weights_[output]);
    return b_.add1("weighted_sum", std::move(inputs), {{"weighted", weighted}});
  }

  Tally tally(std::string name, ValueId sum, size_t output, bool weighted, bool larger_is_better = false) const {
    return {std::move(name), sum, static_cast<int>(output), model_.outputs()[output].rows_per_sample, weighted,
            larger_is_better};
  }

  void add_losses(Forward& forward) {
    const auto& losses = plan_.objective.losses;
    const auto several =
        std::count_if(losses.begin(), losses.end(), [](const auto& loss) { return loss.has_value(); }) > 1;
    targets_.assign(losses.size(), kNone);
    sample_weights_.assign(losses.size(), kNone);
    rows_.assign(losses.size(), kNone);
    for (size_t i = 0; i < losses.size(); ++i) {
      if (!losses[i]) continue;
      const std::string& name = model_.outputs()[i].name;
      const auto layer = b_.in_layer(name);
      read_targets(i);
      rows_[i] = add_loss_rows(b_, *losses[i], forward.predictions[i], targets_[i]);
      const ValueId share = total(rows_[i], factor(name), i, true);
      forward.loss = forward.loss == kNone ? share : b_.add1("add", {forward.loss, share});
      if (several) forward.tallies.push_back(tally(name + "_loss", total(rows_[i], one(), i, true), i, false));
    }
  }

  void add_metrics(Forward& forward) {
    for (const MetricSpec& metric : plan_.objective.metrics) {
      const size_t i = metric.output;
      const auto layer = b_.in_layer(model_.outputs()[i].name);
      const bool as_loss = metric.kind == MetricSpec::Kind::kLoss && metric.loss == *plan_.objective.losses[i];
      const ValueId rows = as_loss ? rows_[i] : add_metric_rows(b_, metric, forward.predictions[i], targets_[i]);
      const bool weighted = metric.weighted && data_.sample_weights;
      forward.tallies.push_back(
          tally(metric.name, total(rows, one(), i, weighted), i, weighted, metric.kind != MetricSpec::Kind::kLoss));
    }
  }

  GraphBuilder& b_;
  const Model& model_;
  const ModelPlan& plan_;
  const int64_t batch_;
  const DType precision_, compute_;
  std::map<std::pair<ValueId, DType>, ValueId> copies_;
  const Mode mode_;
  const DataTypes& data_;
  std::vector<ValueId> values_, targets_, sample_weights_, rows_;
  std::map<ValueId, ValueId> statistics_;
};

}  // namespace

Forward Model::build(GraphBuilder& b, int64_t batch, const Precision& precision, Mode mode,
                     const DataTypes& data) const {
  return GraphWriter(b, *this, *plan_, batch, precision, mode, data).run();
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

}  // namespace plimsoll
