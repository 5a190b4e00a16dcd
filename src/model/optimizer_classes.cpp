// The formulas of keras/src/optimizers/*.py.
#include "model/optimizer_classes.h"

#include <fmt/format.h>

#include <cmath>

#include "base/rounding.h"
#include "model/config.h"
#include "model/optimizer_muon.h"

namespace plimsoll::engine {

Expression StepNumbers::number() {
  return once("number", [&] { return Expression(b_, number_).cast(b_.graph().type(rate_).dtype); });
}

Expression StepNumbers::once(const std::string& name, const std::function<Expression()>& compute) {
  const auto found = values_.find(name);
  if (found != values_.end()) return found->second;
  const auto no_layer = b_.in_layer("");
  return values_[name] = compute();
}

Expression StepNumbers::bias_correction(double beta) {
  return once(fmt::format("correction {}", beta), [&] { return 1 - power(through_float32(beta), number()); });
}

Expression UpdateCall::weight() const {
  if (decay == 0) return held;
  const Expression factor =
      step.once(fmt::format("decay {}", decay), [&] { return step.rate() * through_float32(decay); });
  return held - held * factor;
}

Expression UpdateCall::each(const char* op) const {
  GraphBuilder& b = gradient.builder();
  if (of_tokens != kNone) return {b, of_tokens};
  return rows.empty() ? call(op, gradient) : sum_of_tokens(b, op, rows, gradient.shape()[0]);
}

Expression sum_of_tokens(GraphBuilder& b, const char* op, const std::vector<RowGradient>& parts, int64_t rows) {
  Expression sum;
  for (const RowGradient& part : parts) {
    const ValueId made = b.add1("embedding_grad", {call(op, Expression(b, part.dy)).id(), part.ids}, {{"rows", rows}});
    sum = sum.id() == kNone ? Expression(b, made) : sum + Expression(b, made);
  }
  return sum;
}

namespace {

using Type = OptimizerOption::Type;

Expression sqrt_of(const Expression& x) {
  return call("sqrt", x);
}
Expression square_of(const Expression& x) {
  return call("square", x);
}
// Returns old + (value - old) * (1 - beta).
Expression averaged(const Expression& old, const Expression& value, double beta) {
  return old + (value - old) * (1 - beta);
}

std::vector<StateSlot> slots(const Shape& shape, std::initializer_list<const char*> names) {
  std::vector<StateSlot> list;
  for (const char* name : names) list.push_back({name, shape});
  return list;
}

std::vector<StateSlot> sgd_state(const Optimizer& o, const NamedShape& w) {
  return o.number("momentum") != 0 ? slots(w.shape, {"momentum"}) : std::vector<StateSlot>{};
}

// The ops of SGD and Adam contain the weight decay.
Updated values_of(GraphBuilder& b, const std::vector<ValueId>& ids) {
  Updated list;
  for (const ValueId id : ids) list.emplace_back(b, id);
  return list;
}

Updated update_sgd(const UpdateCall& u) {
  std::vector<ValueId> inputs{u.held.id(), u.gradient.id(), u.step.rate().id()};
  for (const Expression& state : u.state) inputs.push_back(state.id());
  GraphBuilder& b = u.held.builder();
  return values_of(
      b, b.add("sgd", std::move(inputs),
               {{"momentum", u.number("momentum")}, {"nesterov", u.flag("nesterov")}, {"weight_decay", u.decay}}));
}

std::vector<StateSlot> adam_state(const Optimizer& o, const NamedShape& w) {
  std::vector<StateSlot> list = slots(w.shape, {"m", "v"});
  if (o.flag("amsgrad")) list.push_back({"v_hat", w.shape, 1});
  return list;
}

Updated update_adam(const UpdateCall& u) {
  const double beta_1 = u.number("beta_1"), beta_2 = u.number("beta_2"), epsilon = u.number("epsilon");
  if (!u.flag("amsgrad")) return plain_adam(u, u.step.rate(), beta_1, beta_2, epsilon);
  const Expression alpha = u.step.once("alpha", [&] {
    return u.step.rate() * sqrt_of(u.step.bias_correction(beta_2)) / u.step.bias_correction(beta_1);
  });
  const Expression m = averaged(u.state[0], u.gradient, beta_1), v = averaged(u.state[1], u.each("square"), beta_2),
                   v_hat = maximum(u.state[2], v);
  return {u.weight() - m * alpha / (sqrt_of(v_hat) + epsilon), m, v, v_hat};
}

std::vector<StateSlot> moments(const Optimizer&, const NamedShape& w) {
  return slots(w.shape, {"m", "v"});
}

constexpr double kNadamDecay = 0.96;

// beta_1 * (1 - 0.96^number / 2), for the number of this update plus `ahead`.
Expression nadam_u(const Optimizer& o, StepNumbers& step, int ahead) {
  return step.once(fmt::format("u {}", ahead), [&] {
    const Expression number = ahead == 0 ? step.number() : step.number() + ahead;
    return (1 - 0.5 * power(through_float32(kNadamDecay), number)) * o.number("beta_1");
  });
}

Expression update_u_product(const Optimizer& o, StepNumbers& step, const Expression& product) {
  return product * nadam_u(o, step, 0);
}

Updated update_nadam(const UpdateCall& u) {
  // Keras subtracts the rounded betas from 1, which the second moment shows.
  const double beta_1 = through_float32(u.number("beta_1")), beta_2 = through_float32(u.number("beta_2"));
  StepNumbers& step = u.step;
  const Expression of_m = step.once("of m", [&] {
    const Expression next = nadam_u(u.optimizer, step, 1);
    return next / (1 - step.shared() * next);
  });
  const Expression of_g = step.once("of g", [&] { return (1 - nadam_u(u.optimizer, step, 0)) / (1 - step.shared()); });
  const Expression m = averaged(u.state[0], u.gradient, beta_1), v = averaged(u.state[1], u.each("square"), beta_2);
  const Expression m_hat = m * of_m + u.gradient * of_g, v_hat = v / step.bias_correction(beta_2);
  return {u.weight() - m_hat * step.rate() / (sqrt_of(v_hat) + u.number("epsilon")), m, v};
}

Updated update_adamax(const UpdateCall& u) {
  const Expression m = averaged(u.state[0], u.gradient, u.number("beta_1"));
  const Expression norm = maximum(u.state[1] * u.number("beta_2"), u.each("abs"));
  const Expression rate =
      u.step.once("rate", [&] { return u.step.rate() / u.step.bias_correction(u.number("beta_1")); });
  return {u.weight() - m * rate / (norm + u.number("epsilon")), m, norm};
}

std::vector<StateSlot> adamax_state(const Optimizer&, const NamedShape& w) {
  return slots(w.shape, {"m", "norm"});
}

std::vector<StateSlot> adagrad_state(const Optimizer& o, const NamedShape& w) {
  return {{"accumulator", w.shape, 0, o.number("initial_accumulator_value")}};
}

Updated update_adagrad(const UpdateCall& u) {
  const Expression sum = u.state[0] + u.each("square");
  return {u.weight() - u.gradient * u.step.rate() / sqrt_of(sum + u.number("epsilon")), sum};
}

std::vector<StateSlot> adadelta_state(const Optimizer&, const NamedShape& w) {
  return slots(w.shape, {"accumulated_gradient", "accumulated_delta"});
}

Updated update_adadelta(const UpdateCall& u) {
  const double rho = u.number("rho"), epsilon = u.number("epsilon");
  const Expression gradients = u.state[0] * rho + u.each("square") * (1 - rho);
  const Expression delta = -(sqrt_of(u.state[1] + epsilon) * u.gradient / sqrt_of(gradients + epsilon));
  const Expression deltas = u.state[1] * rho + square_of(delta) * (1 - rho);
  return {u.weight() + delta * u.step.rate(), gradients, deltas};
}

std::vector<StateSlot> rmsprop_state(const Optimizer& o, const NamedShape& w) {
  std::vector<StateSlot> list = slots(w.shape, {"v"});
  if (o.number("momentum") > 0) list.push_back({"momentum", w.shape, 1});
  if (o.flag("centered")) list.push_back({"average_gradient", w.shape, 2});
  return list;
}

Updated update_rmsprop(const UpdateCall& u) {
  const double rho = u.number("rho"), momentum = u.number("momentum");
  const Expression v = u.state[0] * rho + u.each("square") * (1 - rho);
  Updated updated{{}, v};
  Expression average, spread = v;
  if (u.flag("centered")) {
    average = u.state.back() * rho + u.gradient * (1 - rho);
    spread = v - square_of(average);
  }
  Expression step = u.gradient * u.step.rate() / sqrt_of(spread + u.number("epsilon"));
  if (momentum > 0) updated.push_back(step = u.state[1] * momentum + step);
  if (u.flag("centered")) updated.push_back(average);
  updated[0] = u.weight() - step;
  return updated;
}

std::string check_ftrl(const Optimizer& o) {
  for (const char* key : {"initial_accumulator_value", "l1_regularization_strength", "l2_regularization_strength",
                          "l2_shrinkage_regularization_strength"})
    if (o.number(key) < 0) return fmt::format("'{}' must be at least 0, got {}", key, o.number(key));
  if (o.number("learning_rate_power") > 0)
    return fmt::format("'learning_rate_power' must be at most 0, got {}", o.number("learning_rate_power"));
  return "";
}

std::vector<StateSlot> ftrl_state(const Optimizer& o, const NamedShape& w) {
  return {{"accumulator", w.shape, 0, o.number("initial_accumulator_value")}, {"linear", w.shape}};
}

Updated update_ftrl(const UpdateCall& u) {
  const double exponent = -u.number("learning_rate_power"), l1 = u.number("l1_regularization_strength"),
               shrinkage = u.number("l2_shrinkage_regularization_strength");
  StepNumbers& step = u.step;
  const Expression w = u.weight(), before = power(u.state[0], exponent);
  const Expression sum = u.state[0] + u.each("square");
  const Expression per_rate = step.once("1 / rate", [&] { return 1.0 / step.rate(); });
  const Expression strength = power(sum, exponent);
  const Expression gradient = shrinkage == 0 ? u.gradient : u.gradient + w * (2 * shrinkage);
  const Expression linear = u.state[1] + (gradient - (strength - before) * per_rate * w);
  // quadratic = strength / rate + 2 * (l2 + beta / (2 * rate))
  const Expression quadratic = (strength + u.number("beta")) * per_rate + 2 * u.number("l2_regularization_strength");
  const Expression clipped = l1 == 0 ? -linear : linear.apply("clip_value", {{"limit", l1}}) - linear;
  return {clipped / quadratic, sum, linear};
}

std::string check_lion(const Optimizer& o) {
  const double beta = o.number("beta_1");
  return beta > 0 && beta <= 1 ? "" : fmt::format("'beta_1' must be above 0 and at most 1, got {}", beta);
}

std::vector<StateSlot> lion_state(const Optimizer&, const NamedShape& w) {
  return slots(w.shape, {"m"});
}

Updated update_lion(const UpdateCall& u) {
  const double beta_1 = through_float32(u.number("beta_1")), beta_2 = through_float32(u.number("beta_2"));
  const Expression direction = call("sign", u.state[0] * beta_1 + u.gradient * (1 - beta_1));
  return {u.weight() - direction * u.step.rate(), u.state[0] * beta_2 + u.gradient * (1 - beta_2)};
}

Updated update_lamb(const UpdateCall& u) {
  const double beta_1 = u.number("beta_1"), beta_2 = u.number("beta_2");
  const Expression w = u.weight(), m = averaged(u.state[0], u.gradient, beta_1),
                   v = averaged(u.state[1], u.each("square"), beta_2);
  const Expression update =
      m / u.step.bias_correction(beta_1) / (sqrt_of(v / u.step.bias_correction(beta_2)) + u.number("epsilon"));
  const Expression of_w = sqrt_of(sum_of_squares(w)), of_u = sqrt_of(sum_of_squares(update));
  // The ratio is 1 if a norm is 0. The division gets a 1 there, so that it is finite.
  const Expression both = greater(of_w * of_u, 0), one = of_w.filled(1);
  const Expression ratio = select(both, of_w / select(both, of_u, one), one);
  return {w - update * (ratio * u.step.rate()), m, v};
}

// The squares of gradients are kept as the means of their rows and columns over the last two dimensions. Keras also
// stores the product of both.
std::vector<StateSlot> adafactor_state(const Optimizer&, const NamedShape& w) {
  const size_t rank = w.shape.rank();
  if (rank < 2) return {{"", {}}, {"", {}}, {"v", w.shape}};
  std::vector<int64_t> rows = w.shape.dims, columns = w.shape.dims;
  rows.pop_back();
  columns.erase(columns.end() - 2);
  return {{"r", Shape(rows)}, {"c", Shape(columns)}, {"v", w.shape}};
}

Updated update_adafactor(const UpdateCall& u) {
  StepNumbers& step = u.step;
  const Expression w = u.weight();
  const Expression root = step.once("rho", [&] { return minimum(step.rate(), call("rsqrt", step.number())); });
  const Expression rest = step.once("rest", [&] { return power(step.number(), u.number("beta_2_decay")); });
  const Expression beta = step.once("beta", [&] { return 1 - rest; });
  const Expression squares = u.each("square") + u.number("epsilon_1");
  Updated updated{{}};
  Expression v;
  const auto rank = static_cast<int64_t>(w.shape().rank());
  if (rank < 2) {
    v = u.state[0] * beta + squares * rest;
  } else {
    std::vector<int64_t> rows = w.shape().dims, columns = w.shape().dims;
    rows[static_cast<size_t>(rank - 1)] = 1;
    columns[static_cast<size_t>(rank - 2)] = 1;
    const auto averaged_over = [&](const Expression& state, int64_t axis) {
      return state * beta + mean(squares, {axis}).reshaped(state.shape().dims) * rest;
    };
    updated.push_back(averaged_over(u.state[0], rank - 1));
    updated.push_back(averaged_over(u.state[1], rank - 2));
    const Expression r = updated[1].reshaped(rows);
    v = r / mean(r, {rank - 2}) * updated[2].reshaped(columns);
  }
  updated.push_back(v);
  const Expression direction = u.gradient / sqrt_of(v);
  const Expression excess = maximum(sqrt_of(mean_of_squares(direction)) / u.number("clip_threshold"), 1);
  const Expression alpha = maximum(sqrt_of(mean_of_squares(w)), u.number("epsilon_2")) * root;
  updated[0] = w - direction * (alpha / excess);
  return updated;
}

std::vector<StateSlot> schedule_free_state(const Optimizer&, const NamedShape& w) {
  return {{"m", w.shape, 0, 0, true}, {"v", w.shape}};
}

Updated update_schedule_free(const UpdateCall& u) {
  const double beta_1 = through_float32(u.number("beta_1")), beta_2 = through_float32(u.number("beta_2"));
  const double warmup = u.number("warmup_steps");
  StepNumbers& step = u.step;
  const Expression rate =
      step.once("rate", [&] { return warmup > 0 ? step.rate() * minimum(step.number() / warmup, 1) : step.rate(); });
  const Expression v = averaged(u.state[1], u.each("square"), beta_2);
  const Expression spread = sqrt_of(v / step.bias_correction(beta_2)) + u.number("epsilon");
  const Expression m = u.state[0] - u.gradient * rate / spread;
  const Expression share = step.once("share", [&] { return 1.0 / step.number(); });
  const Expression rest = step.once("rest", [&] { return 1 - share; });
  // Keras means the momentum before the update here, but on TensorFlow it reads the variable after it.
  const Expression x = (u.weight() - m * (1 - beta_1)) / beta_1;
  const Expression averaged_x = x * rest + m * share;
  return {m * (1 - beta_1) + averaged_x * beta_1, m, v};
}

}  // namespace

const std::vector<OptimizerClass>& optimizer_classes() {
  const std::vector<OptimizerOption> betas = {{"beta_1", 0.9}, {"beta_2", 0.999}, {"epsilon", 1e-7}};
  const auto with = [](std::vector<OptimizerOption> list, std::initializer_list<OptimizerOption> more) {
    list.insert(list.end(), more);
    return list;
  };
  const auto adam = with(betas, {{"amsgrad", 0, Type::kFlag}});
  static const std::vector<OptimizerClass> classes = {
      {"SGD",
       0.01,
       0,
       {{"momentum", 0}, {"nesterov", 0, Type::kFlag}},
       [](const Optimizer& o) -> std::string {
         const double m = o.number("momentum");
         return m >= 0 && m <= 1 ? "" : fmt::format("'momentum' must lie between 0 and 1, got {}", m);
       },
       sgd_state,
       update_sgd},
      {"Adam", 0.001, 0, adam, nullptr, adam_state, update_adam},
      {"AdamW", 0.001, 0.004, adam, nullptr, adam_state, update_adam},
      {"Nadam", 0.001, 0, betas, nullptr, moments, update_nadam, 1, update_u_product},
      {"Adamax", 0.001, 0, betas, nullptr, adamax_state, update_adamax},
      {"Adagrad",
       0.001,
       0,
       {{"initial_accumulator_value", 0.1}, {"epsilon", 1e-7}},
       nullptr,
       adagrad_state,
       update_adagrad},
      {"Adadelta", 0.001, 0, {{"rho", 0.95}, {"epsilon", 1e-7}}, nullptr, adadelta_state, update_adadelta},
      {"RMSprop",
       0.001,
       0,
       {{"rho", 0.9}, {"momentum", 0}, {"epsilon", 1e-7}, {"centered", 0, Type::kFlag}},
       nullptr,
       rmsprop_state,
       update_rmsprop},
      {"Ftrl",
       0.001,
       0,
       {{"learning_rate_power", -0.5},
        {"initial_accumulator_value", 0.1},
        {"l1_regularization_strength", 0},
        {"l2_regularization_strength", 0},
        {"l2_shrinkage_regularization_strength", 0},
        {"beta", 0}},
       check_ftrl,
       ftrl_state,
       update_ftrl},
      {"Lion", 0.001, 0, {{"beta_1", 0.9}, {"beta_2", 0.99}}, check_lion, lion_state, update_lion},
      {"Lamb", 0.001, 0, betas, nullptr, moments, update_lamb},
      {"Adafactor",
       0.001,
       0,
       {{"beta_2_decay", -0.8},
        {"epsilon_1", 1e-30},
        {"epsilon_2", 1e-3},
        {"clip_threshold", 1},
        {"relative_step", 1, Type::kFlag}},
       nullptr,
       adafactor_state,
       update_adafactor},
      {"Muon", 0.001, 0.004, muon_options(), check_muon, muon_state, update_muon},
      {"ScheduleFreeAdamW",
       0.0025,
       0,
       {{"beta_1", 0.9}, {"beta_2", 0.999}, {"epsilon", 1e-8}, {"warmup_steps", 0}},
       nullptr,
       schedule_free_state,
       update_schedule_free},
  };
  return classes;
}

const OptimizerClass* find_optimizer_class(const std::string& lower_case_name) {
  for (const OptimizerClass& one : optimizer_classes())
    if (lower_case(std::string(one.name)) == lower_case_name) return &one;
  return nullptr;
}

}  // namespace plimsoll::engine
