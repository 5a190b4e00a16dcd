#include "model/optimizer_muon.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/config.h"

namespace plimsoll::engine {
namespace {

using Type = OptimizerOption::Type;

Expression product(const Expression& a, const Expression& b, bool transpose_a = false, bool transpose_b = false) {
  return a.apply("matmul", b, {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}});
}

// Newton-Schulz iterations. Keras transposes a matrix that has more rows than columns. The iteration on the transposed
// matrix is written here with the products the other way round.
Expression orthogonalised(const UpdateCall& u, Expression x) {
  const bool tall = x.shape()[0] > x.shape()[1];
  x = x / (call("sqrt", sum_of_squares(x)) + 1e-7);
  for (int i = 0; i < static_cast<int>(u.number("ns_steps")); ++i) {
    const Expression a = tall ? product(x, x, true, false) : product(x, x, false, true);
    const Expression b = a * u.number("muon_b") + product(a, a) * u.number("muon_c");
    x = x * u.number("muon_a") + (tall ? product(x, b) : product(b, x));
  }
  return x;
}

}  // namespace

std::vector<OptimizerOption> muon_options() {
  return {{"adam_beta_1", 0.9}, {"adam_beta_2", 0.999},       {"adam_weight_decay", 0.004},
          {"epsilon", 1e-7},    {"muon_a", 3.4445},           {"muon_b", -4.7750},
          {"muon_c", 2.0315},   {"adam_lr_ratio", 1},         {"momentum", 0.95},
          {"ns_steps", 5},      {"nesterov", 1, Type::kFlag}, {"exclude_embeddings", 1, Type::kFlag},
          {"rms_rate", 0.2}};
}

std::string check_muon(const Optimizer& o) {
  constexpr double kMostSteps = 100;
  const double steps = o.number("ns_steps");
  if (!(steps >= 0 && steps <= kMostSteps) || steps != std::floor(steps))
    return fmt::format("'ns_steps' must be a whole number from 0 to {}, got {}", kMostSteps, steps);
  return "";
}

bool is_for_adam(const Optimizer& o, const NamedShape& weight) {
  if (weight.shape.rank() != 2) return true;
  if (o.flag("exclude_embeddings") && lower_case(weight.name).find("embedding") != std::string::npos) return true;
  return std::any_of(o.patterns.begin(), o.patterns.end(),
                     [&](const std::string& pattern) { return weight.name.find(pattern) != std::string::npos; });
}

std::vector<StateSlot> muon_state(const Optimizer& o, const NamedShape& weight) {
  std::vector<StateSlot> list = {{"m", weight.shape}};
  if (is_for_adam(o, weight)) list.push_back({"v", weight.shape});
  return list;
}

Updated plain_adam(const UpdateCall& u, const Expression& rate, double beta_1, double beta_2, double epsilon) {
  if (u.has_tokens()) {
    StepNumbers& step = u.step;
    const Expression alpha = step.once(fmt::format("alpha {} {}", beta_1, rate.id()), [&] {
      return rate * call("sqrt", step.bias_correction(beta_2)) / step.bias_correction(beta_1);
    });
    const Expression m = u.state[0] + (u.gradient - u.state[0]) * (1 - beta_1);
    const Expression v = u.state[1] + (u.each("square") - u.state[1]) * (1 - beta_2);
    return {u.weight() - m * alpha / (call("sqrt", v) + epsilon), m, v};
  }
  GraphBuilder& b = u.held.builder();
  // The op decays by its own rate. The rates differ only in Muon with adam_lr_ratio, where the weight is decayed
  // before.
  const bool own = rate.id() == u.step.rate().id();
  Updated updated;
  for (const ValueId id :
       b.add("adam",
             {own ? u.held.id() : u.weight().id(), u.gradient.id(), u.state[0].id(), u.state[1].id(), rate.id(),
              u.step.number_i64()},
             {{"beta_1", beta_1}, {"beta_2", beta_2}, {"epsilon", epsilon}, {"weight_decay", own ? u.decay : 0.0}}))
    updated.emplace_back(b, id);
  return updated;
}

Updated update_muon(const UpdateCall& u) {
  StepNumbers& step = u.step;
  if (u.state.size() == 2) {
    const double ratio = u.number("adam_lr_ratio");
    const Expression rate = ratio == 1 ? step.rate() : step.once("adam rate", [&] { return step.rate() * ratio; });
    return plain_adam(u, rate, u.number("adam_beta_1"), u.number("adam_beta_2"), u.number("epsilon"));
  }
  const double momentum = u.number("momentum"), rms = u.number("rms_rate");
  const Expression m = u.state[0] + (u.gradient + u.state[0] * (momentum - 1));
  const Expression x = orthogonalised(u, u.flag("nesterov") ? u.gradient + m * momentum : m);
  const Shape& shape = u.held.shape();
  const double size = std::isnan(rms) ? 1 : std::sqrt(static_cast<double>(std::max(shape[0], shape[1]))) * rms;
  const Expression rate = step.once(fmt::format("rate {}", size), [&] { return step.rate() * size; });
  return {u.weight() - x * rate, m};
}

}  // namespace plimsoll::engine
