#include "model/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "model/expression.h"
#include "model/optimizer_classes.h"
#include "model/values.h"

namespace plimsoll::engine {

double Optimizer::number(std::string_view name) const {
  const auto found = numbers.find(name);
  return found == numbers.end() ? 0 : found->second;
}

std::string average_value(const std::string& weight) {
  return weight + "/average";
}

namespace {

std::string accumulator_value(const std::string& weight) {
  return weight + "/gradient_accumulator";
}
constexpr const char* kSharedState = "optimizer/shared";

const OptimizerClass& class_of(const Optimizer& optimizer) {
  return optimizer.kind != nullptr ? *optimizer.kind : optimizer_classes().front();
}

std::string state_value(const NamedShape& weight, const StateSlot& slot) {
  return slot.name.empty() ? "" : fmt::format("{}/{}", weight.name, slot.name);
}

}  // namespace

std::vector<StateVariable> state_variables(const Optimizer& optimizer, const std::vector<NamedShape>& weights) {
  using Initial = StateVariable::Initial;
  const OptimizerClass& kind = class_of(optimizer);
  std::vector<StateVariable> list;
  if (optimizer.ema_momentum)
    for (const NamedShape& w : weights) list.push_back({average_value(w.name), w.shape, Initial::kNumber, 0, ""});
  if (optimizer.accumulation_steps > 1)
    for (const NamedShape& w : weights) list.push_back({accumulator_value(w.name), w.shape, Initial::kNumber, 0, ""});
  constexpr int kMostGroups = 3;
  for (int group = 0; group < kMostGroups; ++group)
    for (const NamedShape& w : weights)
      for (const StateSlot& slot : kind.state(optimizer, w))
        if (slot.group == group)
          list.push_back({state_value(w, slot), slot.shape, slot.from_weight ? Initial::kWeight : Initial::kNumber,
                          slot.initial, slot.from_weight ? w.name : ""});
  if (kind.update_shared != nullptr) list.push_back({kSharedState, {}, Initial::kNumber, kind.shared_initial, ""});
  return list;
}

namespace {

struct RowWeight : TrainedWeight {
  std::vector<RowGradient> rows;  // the parts of the gradient, if it has no others
};

// Returns the parts of a gradient that is a sum of gradients of embeddings, or nothing if it has another part too.
std::vector<RowGradient> row_parts(const Graph& graph, ValueId gradient) {
  std::vector<RowGradient> parts;
  std::vector<ValueId> rest{gradient};
  while (!rest.empty()) {
    const NodeId producer = rest.back() == kNone ? kNone : graph.value(rest.back()).producer;
    if (producer == kNone) return {};
    const Node& node = graph.node(producer);
    rest.pop_back();
    if (node.op == "embedding_grad")
      parts.push_back({node.inputs[0], node.inputs[1]});
    else if (node.op == "add")
      rest.insert(rest.end(), node.inputs.rbegin(), node.inputs.rend());
    else
      return {};
  }
  return parts;
}

// Changes a gradient element by element: of an embedding table, that of each token.
template <typename Change>
void change_gradient(GraphBuilder& b, RowWeight& w, Change change) {
  if (w.gradient == kNone) return;
  const auto layer = b.in_layer(b.graph().value(w.weight).layer);
  if (w.rows.empty()) {
    w.gradient = change(w.gradient);
    return;
  }
  const int64_t rows = b.graph().type(w.weight).shape[0];
  ValueId sum = kNone;
  for (RowGradient& part : w.rows) {
    part.dy = change(part.dy);
    const ValueId made = b.add1("embedding_grad", {part.dy, part.ids}, {{"rows", rows}});
    sum = sum == kNone ? made : b.add1("add", {sum, made});
  }
  w.gradient = sum;
}

// The sum of the squares of a gradient's elements.
ValueId squared_norm(GraphBuilder& b, const RowWeight& w) {
  if (w.rows.empty()) return b.add1("squared_norm", {w.gradient});
  ValueId sum = kNone;
  for (const RowGradient& part : w.rows) {
    const ValueId one = b.add1("squared_norm", {part.dy});
    sum = sum == kNone ? one : b.add1("add", {sum, one});
  }
  return sum;
}

// Clips the gradients as in Keras, all before any weight changes.
void clip(GraphBuilder& b, const Optimizer& optimizer, std::vector<RowWeight>& weights) {
  const auto category = b.in_category(Category::kGradients);
  const auto each = [&](auto change) {
    for (RowWeight& w : weights) {
      if (w.gradient == kNone) continue;
      const auto layer = b.in_layer(b.graph().value(w.weight).layer);
      change(w);
    }
  };
  const auto factor = [&](ValueId squared, double limit) {
    return b.add1("clip_factor", {squared}, {{"limit", limit}});
  };
  if (optimizer.clipnorm) {
    each([&](RowWeight& w) {
      const ValueId own = factor(squared_norm(b, w), *optimizer.clipnorm);
      change_gradient(b, w, [&](ValueId g) { return b.add1("scale", {g, own}); });
    });
  } else if (optimizer.global_clipnorm) {
    ValueId total = kNone;
    each([&](RowWeight& w) {
      const ValueId squared = squared_norm(b, w);
      total = total == kNone ? squared : b.add1("add", {total, squared});
    });
    if (total == kNone) return;
    const ValueId shared = factor(total, *optimizer.global_clipnorm);
    each([&](RowWeight& w) {
      w.rows.clear();  // Keras's product with the factor adds up the tokens
      change_gradient(b, w, [&](ValueId g) { return b.add1("scale", {g, shared}); });
    });
  } else if (optimizer.clipvalue) {
    each([&](RowWeight& w) {
      change_gradient(b, w, [&](ValueId g) { return b.add1("clip_value", {g}, {{"limit", *optimizer.clipvalue}}); });
    });
  }
}

}  // namespace

ValueId loss_gradient(GraphBuilder& b, const Optimizer& optimizer, DType dtype) {
  const auto layer = b.in_layer("");
  if (!optimizer.loss_scale)
    return optimizer.loss_scale_factor == 1 ? kNone : constant(b, dtype, {}, optimizer.loss_scale_factor).id();
  return b.persistent(kLossScale, {dtype, Shape{}}, Category::kOptimizer);
}

namespace {

// If a gradient was cast from half precision, returns the half-precision value: the same elements are finite, and it
// has fewer bytes to read.
ValueId before_cast(const Graph& graph, ValueId gradient) {
  const NodeId producer = graph.value(gradient).producer;
  if (producer == kNone || graph.node(producer).op != "cast") return gradient;
  const ValueId from = graph.node(producer).inputs[0];
  return is_half(graph.type(from).dtype) ? from : gradient;
}

// Protects updates against overflow: divides the gradients by the loss scale and counts their elements that are not
// finite.
class Guard {
 public:
  Guard(GraphBuilder& b, const Optimizer& optimizer, std::vector<RowWeight>& weights)
      : b_(b), scheduled_(!optimizer.schedule.is_null()) {
    std::vector<ValueId> looked_at;
    for (const RowWeight& w : weights)
      if (w.gradient != kNone) looked_at.push_back(before_cast(b.graph(), w.gradient));
    if (!optimizer.loss_scale || looked_at.empty()) return;
    growth_steps_ = optimizer.loss_scale->growth_steps;
    scale_ = loss_gradient(b, optimizer, b.graph().type(weights.front().weight).dtype);
    const auto category = b.in_category(Category::kGradients);
    const auto no_layer = b.in_layer("");
    skipped_ = b.persistent(kSkippedUpdates, {DType::kInt64, Shape{}}, Category::kOptimizer);
    bad_ = b.add1("count_not_finite", std::move(looked_at));
    for (RowWeight& w : weights) change_gradient(b, w, [&](ValueId g) { return b.add1("unscale", {g, scale_}); });
  }

  // Returns how many times the optimizer was applied, this time included. Skipped updates are not counted.
  ValueId iteration() {
    const auto no_layer = b_.in_layer("");
    const ValueId iteration = step_scalar(b_, StepScalar::kIteration, DType::kInt64);
    if (bad_ == kNone) return iteration;
    if (applied_ == kNone) applied_ = b_.add1("applied_updates", {iteration, skipped_});
    return applied_;
  }
  // Returns the schedule's learning rate for this update.
  ValueId rate(DType dtype) {
    const auto no_layer = b_.in_layer("");
    const ValueId rate = step_scalar(b_, StepScalar::kLearningRate, dtype);
    if (bad_ == kNone || !scheduled_) return rate;
    if (rate_ != kNone) return rate_;
    const ValueId other = step_scalar(b_, StepScalar::kRateIfSkipped, b_.graph().type(rate).dtype);
    const ValueId known = step_scalar(b_, StepScalar::kKnownSkips, DType::kInt64);
    return rate_ = b_.add1("scheduled_rate", {rate, other, skipped_, known});
  }
  // Returns the value, or `old` after an overflow.
  ValueId kept(ValueId value, ValueId old) const {
    return bad_ == kNone ? value : b_.add1("keep_if", {value, old, bad_});
  }
  void update(ValueId persistent, ValueId value) const { b_.update(persistent, kept(value, persistent)); }
  void update(const RowWeight& w, ValueId value) const { b_.update(w.weight, kept(value, w.current())); }
  // Must come last: nothing may read the scale or the counts afterwards.
  void finish() const {
    if (bad_ == kNone) return;
    const auto layer = b_.in_layer("");
    const ValueId steps = b_.persistent(kLossScaleSteps, {DType::kInt64, Shape{}}, Category::kOptimizer);
    const auto next = b_.add("loss_scale", {scale_, steps, skipped_, bad_}, {{"growth_steps", growth_steps_}});
    const ValueId kept[] = {scale_, steps, skipped_};
    for (size_t i = 0; i < 3; ++i) b_.update(kept[i], next[i]);
  }

 private:
  GraphBuilder& b_;
  bool scheduled_;
  int64_t growth_steps_ = 0;
  ValueId scale_ = kNone, bad_ = kNone, skipped_ = kNone, applied_ = kNone, rate_ = kNone;
};

}  // namespace

namespace {

// Adds the updates of all weights, in the order of BaseOptimizer.apply: accumulation, clipping, weight decay, the
// class's update, moving averages, constraints.
class Updater {
 public:
  Updater(GraphBuilder& b, const Optimizer& optimizer, std::vector<RowWeight>& weights)
      : b_(b),
        optimizer_(optimizer),
        kind_(class_of(optimizer)),
        weights_(weights),
        guard_(b, optimizer, weights),
        dtype_(b.graph().type(weights.front().weight).dtype),
        step_(begin_step()) {}

  void run() {
    if (kind_.update_shared != nullptr) update_shared();
    const std::vector<ValueId> sums = accumulated();
    clip(b_, optimizer_, weights_);
    for (size_t i = 0; i < weights_.size(); ++i) {
      const Value held = b_.graph().value(weights_[i].weight);
      const auto layer = b_.in_layer(held.layer);
      const ValueId updated = weights_[i].gradient == kNone ? kNone : update(weights_[i], held);
      finish_weight(weights_[i], held, updated);
      if (!sums.empty() && sums[i] != kNone)
        guard_.update(persistent(accumulator_value(held.name), held.type), sums[i]);
    }
    guard_.finish();
  }

 private:
  ValueId persistent(const std::string& name, const TensorType& type) {
    return b_.persistent(name, type, Category::kOptimizer);
  }

  // With accumulation, the number of an update is that of the group of windows, and `pending_` is 1 except in its last.
  StepNumbers begin_step() {
    const ValueId rate = guard_.rate(dtype_);
    ValueId number = guard_.iteration();
    if (optimizer_.accumulation_steps > 1) {
      const auto periods = count_periods(number, optimizer_.accumulation_steps);
      number = periods[0];
      pending_ = {b_, periods[1]};
    }
    return {b_, rate, number};
  }

  std::vector<ValueId> count_periods(ValueId count, int64_t period) {
    const auto no_layer = b_.in_layer("");
    return b_.add("count_periods", {count}, {{"period", period}, {"dtype", std::string(name_of(dtype_))}});
  }

  // Returns `old` while gradients are still being summed.
  ValueId when_complete(ValueId value, ValueId old) {
    return pending_.id() == kNone ? value : b_.add1("keep_if", {value, old, pending_.id()});
  }

  // Replaces the gradients by means over the windows of the group. Returns the new sums, which are 0 after the last.
  std::vector<ValueId> accumulated() {
    std::vector<ValueId> sums;
    if (pending_.id() == kNone) return sums;
    for (RowWeight& w : weights_) {
      sums.push_back(kNone);
      if (w.gradient == kNone) continue;
      const Value held = b_.graph().value(w.weight);
      const auto layer = b_.in_layer(held.layer);
      const Expression sum =
          Expression(b_, persistent(accumulator_value(held.name), held.type)) + Expression(b_, w.gradient);
      sums.back() = (sum * pending_).id();
      w.gradient = (sum / static_cast<double>(optimizer_.accumulation_steps)).id();
      w.rows.clear();
      w.of_tokens = kNone;
    }
    return sums;
  }

  void update_shared() {
    const auto no_layer = b_.in_layer("");
    const ValueId held = persistent(kSharedState, {dtype_, Shape{}});
    step_.shared() = kind_.update_shared(optimizer_, step_, {b_, held});
    guard_.update(held, when_complete(step_.shared().id(), held));
  }

  // Returns the new weight.
  ValueId update(const RowWeight& w, const Value& held) {
    const NamedShape named{held.name, held.type.shape};
    UpdateCall call{optimizer_, held.name, {b_, w.current()}, {b_, w.gradient}, decay_of(named), {},
                    step_,      w.rows,    w.of_tokens};
    for (const StateSlot& slot : kind_.state(optimizer_, named))
      if (!slot.name.empty())
        call.state.emplace_back(b_, persistent(state_value(named, slot), {held.type.dtype, slot.shape}));
    const Updated updated = kind_.update(call);
    assert(updated.size() == call.state.size() + 1);
    for (size_t s = 0; s < call.state.size(); ++s)
      guard_.update(call.state[s].id(), when_complete(updated[s + 1].id(), call.state[s].id()));
    return when_complete(updated[0].id(), w.current());
  }

  double decay_of(const NamedShape& weight) const {
    return kind_.name == "Muon" && is_for_adam(optimizer_, weight) ? optimizer_.number("adam_weight_decay")
                                                                   : optimizer_.weight_decay;
  }

  // Moving averages are of all weights, constraints are only for weights with a gradient. `updated` may be kNone.
  void finish_weight(const RowWeight& w, const Value& held, ValueId updated) {
    const bool moves = updated != kNone;
    if (optimizer_.ema_momentum) {
      const Expression now(b_, moves ? updated : w.current()), old(b_, persistent(average_value(held.name), held.type));
      const Expression average = old * old_share() + now * new_share();
      guard_.update(old.id(), average.id());
      if (optimizer_.ema_overwrite_frequency > 0)
        updated = b_.add1("keep_if", {now.id(), average.id(), overwrites().id()});
    }
    if (moves && w.constraint) updated = constrained(*w.constraint, {b_, updated}).id();
    if (updated == kNone && w.current() != w.weight) updated = w.current();
    if (updated != kNone) guard_.update(w, updated);
  }

  // The first average is the weight itself.
  Expression old_share() {
    return step_.once("old share", [&] { return minimum(step_.number() - 1, 1) * *optimizer_.ema_momentum; });
  }
  Expression new_share() {
    return step_.once("new share", [&] { return 1 - old_share(); });
  }
  // 1 if the averages replace the weights after this update.
  Expression overwrites() {
    return step_.once("overwrites", [&] {
      return 1 - Expression(b_, count_periods(step_.number_i64(), optimizer_.ema_overwrite_frequency)[1]);
    });
  }

  GraphBuilder& b_;
  const Optimizer& optimizer_;
  const OptimizerClass& kind_;
  std::vector<RowWeight>& weights_;
  Guard guard_;
  DType dtype_;
  Expression pending_;
  StepNumbers step_;
};

// Divides the gradients by a constant loss scale.
void unscale(GraphBuilder& b, double factor, std::vector<RowWeight>& weights) {
  const auto category = b.in_category(Category::kGradients);
  for (RowWeight& w : weights) change_gradient(b, w, [&](ValueId g) { return (Expression(b, g) / factor).id(); });
}

}  // namespace

namespace {

// What a class applies to the gradient of each token.
std::string_view function_of(const Optimizer& optimizer) {
  const std::string_view name = class_of(optimizer).name;
  if (name == "SGD" || name == "Lion") return "";
  return name == "Adamax" ? "abs" : "square";
}

}  // namespace

bool reads_single_rows(const Optimizer& optimizer) {
  const bool scaled = optimizer.loss_scale || optimizer.loss_scale_factor != 1;
  return optimizer.clipnorm || optimizer.global_clipnorm || optimizer.clipvalue ||
         (scaled && !function_of(optimizer).empty());
}

std::string_view token_function(const Optimizer& optimizer) {
  return reads_single_rows(optimizer) ? "" : function_of(optimizer);
}

ValueId append_token_sum(GraphBuilder& b, const Optimizer& optimizer, ValueId table, ValueId gradient) {
  const std::vector<RowGradient> parts = row_parts(b.graph(), gradient);
  if (parts.empty()) return kNone;
  return sum_of_tokens(b, token_function(optimizer).data(), parts, b.graph().type(table).shape[0]).id();
}

void append_updates(GraphBuilder& b, const Optimizer& optimizer, std::vector<TrainedWeight> weights) {
  const bool any = std::any_of(weights.begin(), weights.end(), [](const auto& w) { return w.gradient != kNone; });
  for (const TrainedWeight& w : weights)
    if (!any && w.current() != w.weight) b.update(w.weight, w.current());
  if (!any) return;
  const auto update = b.in_stage(Stage::kUpdate, Category::kTemporaries);
  std::vector<RowWeight> with_rows;
  for (TrainedWeight& w : weights) {
    const std::vector<RowGradient> rows = row_parts(b.graph(), w.gradient);
    with_rows.push_back({std::move(w), rows});
  }
  if (!optimizer.loss_scale && optimizer.loss_scale_factor != 1) unscale(b, optimizer.loss_scale_factor, with_rows);
  Updater(b, optimizer, with_rows).run();
}

}  // namespace plimsoll::engine
