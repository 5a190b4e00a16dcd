// Learning-rate schedules, with the formulas of keras/src/optimizers/schedules/learning_rate_schedule.py. Keras
// computes them in float32, we compute them in float64, so they agree up to float32 rounding.
#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "model/config.h"
#include "model/optimizer.h"

namespace plimsoll::engine {
namespace {

struct Schedule {
  std::string kind;
  double initial = 0, steps = 1, rate = 0, end = 0, power = 1, alpha = 0, t_mul = 2, m_mul = 1;
  std::optional<double> warmup_target;
  double warmup_steps = 0;
  bool staircase = false, cycle = false;
  std::vector<double> boundaries, values;
};

double required(Config& c, const std::string& key) {
  const auto number = c.optional_real(key);
  if (!number && !c.issues().bad) c.issues().reject(fmt::format("{}: '{}' must be a number", c.where(), key));
  return number.value_or(1);
}

std::vector<double> numbers(Config& c, const std::string& key) {
  std::vector<double> list;
  const Json* value = c.value(key);
  bool good = value && value->is_array();
  for (size_t i = 0; good && i < value->size(); ++i) {
    const auto number = as_number((*value)[i]);
    good = number.has_value();
    list.push_back(number.value_or(0));
  }
  if (!good) c.issues().reject(fmt::format("{}: '{}' must be a list of numbers", c.where(), key));
  return list;
}

Schedule read(const Json& json, Issues& issues) {
  const KerasObject object = keras_object(json);
  Schedule s;
  s.kind = object.custom ? "" : object.name;
  Config c(object.config, object.name, issues);
  c.ignore({"name"});
  if (s.kind == "PiecewiseConstantDecay") {
    s.boundaries = numbers(c, "boundaries");
    s.values = numbers(c, "values");
    if (s.boundaries.empty() || s.values.size() != s.boundaries.size() + 1)
      issues.reject("PiecewiseConstantDecay: there must be one more value than boundaries");
    c.finish();
    return s;
  }
  const bool restarts = s.kind == "CosineDecayRestarts";
  if (s.kind == "ExponentialDecay" || s.kind == "InverseTimeDecay") {
    s.rate = required(c, "decay_rate");
    s.staircase = c.flag("staircase", false);
  } else if (s.kind == "PolynomialDecay") {
    s.end = c.real("end_learning_rate", 0.0001);
    s.power = c.real("power", 1);
    s.cycle = c.flag("cycle", false);
  } else if (s.kind == "CosineDecay") {
    s.alpha = c.real("alpha", 0);
    s.warmup_target = c.optional_real("warmup_target");
    s.warmup_steps = c.real("warmup_steps", 0);
  } else if (restarts) {
    s.t_mul = c.real("t_mul", 2);
    s.m_mul = c.real("m_mul", 1);
    s.alpha = c.real("alpha", 0);
    if (s.t_mul < 1) issues.reject("CosineDecayRestarts: 't_mul' must be 1 or more");
  } else {
    issues.unknown(object.name.empty() ? shown(json) : object.name);
    return s;
  }
  s.initial = required(c, "initial_learning_rate");
  s.steps = required(c, restarts ? "first_decay_steps" : "decay_steps");
  if (s.steps <= 0) issues.reject(object.name + ": the number of decay steps must be positive");
  c.finish();
  return s;
}

double cosine(double from, double alpha, double fraction) {
  return from * ((1 - alpha) * 0.5 * (1 + std::cos(std::numbers::pi * fraction)) + alpha);
}

double cosine_decay(const Schedule& s, double step) {
  if (!s.warmup_target) return cosine(s.initial, s.alpha, std::min(step, s.steps) / s.steps);
  step = std::min(step, s.steps + s.warmup_steps);
  if (step < s.warmup_steps) return (*s.warmup_target - s.initial) * (step / s.warmup_steps) + s.initial;
  return cosine(*s.warmup_target, s.alpha, (step - s.warmup_steps) / s.steps);
}

double cosine_restarts(const Schedule& s, double step) {
  double fraction = step / s.steps, restart = 0;
  if (s.t_mul == 1) {
    restart = std::floor(fraction);
    fraction -= restart;
  } else {
    restart = std::floor(std::log(1 - fraction * (1 - s.t_mul)) / std::log(s.t_mul));
    const double power = std::pow(s.t_mul, restart);
    fraction = (fraction - (1 - power) / (1 - s.t_mul)) / power;
  }
  const double height = 0.5 * std::pow(s.m_mul, restart) * (1 + std::cos(std::numbers::pi * fraction));
  return s.initial * ((1 - s.alpha) * height + s.alpha);
}

double polynomial(const Schedule& s, double step) {
  double steps = s.steps;
  if (s.cycle)
    steps *= step == 0 ? 1 : std::ceil(step / s.steps);
  else
    step = std::min(step, steps);
  return (s.initial - s.end) * std::pow(1 - step / steps, s.power) + s.end;
}

double piecewise(const Schedule& s, double step) {
  for (size_t i = 0; i < s.boundaries.size(); ++i)
    if (step <= s.boundaries[i]) return s.values[i];
  return s.values.back();
}

double rate_of(const Schedule& s, double step) {
  if (s.kind == "PiecewiseConstantDecay") return piecewise(s, step);
  if (s.kind == "PolynomialDecay") return polynomial(s, step);
  if (s.kind == "CosineDecay") return cosine_decay(s, step);
  if (s.kind == "CosineDecayRestarts") return cosine_restarts(s, step);
  const double p = s.staircase ? std::floor(step / s.steps) : step / s.steps;
  return s.kind == "ExponentialDecay" ? s.initial * std::pow(s.rate, p) : s.initial / (1 + s.rate * p);
}

}  // namespace

std::string check_schedule(const Json& schedule) {
  Issues issues;
  read(schedule, issues);
  if (!issues.unsupported.empty()) return issues.unsupported.front();
  return issues.bad ? issues.bad->what : "";
}

double learning_rate_at(const Optimizer& optimizer, int64_t iteration) {
  if (optimizer.schedule.is_null()) return optimizer.learning_rate;
  Issues issues;
  const Schedule schedule = read(optimizer.schedule, issues);
  assert(issues.unsupported.empty() && !issues.bad);
  return rate_of(schedule, static_cast<double>(iteration));
}

}  // namespace plimsoll::engine
