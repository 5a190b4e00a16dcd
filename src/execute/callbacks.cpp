#include "execute/callbacks.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "base/json_numbers.h"

namespace plimsoll::engine {
namespace {

using Json = nlohmann::json;

bool larger_is_better(const std::vector<Tally>& tallies, std::string name) {
  if (name.starts_with("val_")) name.erase(0, 4);
  for (const Tally& tally : tallies)
    if (tally.name == name) return tally.larger_is_better;
  return false;
}

const Json& member(const Json& json, const char* key) {
  static const Json none;
  const auto at = json.find(key);
  return at == json.end() ? none : *at;
}

}  // namespace

Json number_to_json(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

std::optional<double> number_from_json(const Json& json) {
  if (json.is_number()) return json.get<double>();
  if (json == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (json == "inf") return std::numeric_limits<double>::infinity();
  if (json == "-inf") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

const double* Monitor::value_in(const std::vector<Metric>& metrics) const {
  for (const Metric& metric : metrics)
    if (metric.name == metric_) return &metric.value;
  return nullptr;
}

bool Monitor::improves(double value) const {
  if (!best) return true;
  const auto reference = static_cast<float>(*best);
  return larger_is_better_ ? static_cast<float>(value - min_delta_) > reference
                           : static_cast<float>(value + min_delta_) < reference;
}

Json Monitor::to_json() const {
  return json_object({{"metric", metric_}, {"best", best ? number_to_json(*best) : Json()}, {"waited", waited}});
}

bool Monitor::from_json(const Json& json) {
  if (!json.is_object() || member(json, "metric") != metric_) return false;
  const Json& value = member(json, "best");
  const auto number = number_from_json(value);
  const auto count = whole_number(member(json, "waited"), 0, kMostSteps);
  if (!count || (!number && !value.is_null())) return false;
  best = number;
  waited = *count;
  return true;
}

Callbacks::Callbacks(const CallbackOptions& options, const std::vector<Tally>& tallies) : options_(options) {
  const auto watch = [&](std::optional<Monitor>& monitor, const std::string& metric, double min_delta) {
    monitor.emplace(metric, larger_is_better(tallies, metric), min_delta);
  };
  if (options.early_stopping) watch(stopping_, options.early_stopping->metric, 0);
  if (options.reduce_lr) watch(plateau_, options.reduce_lr->metric, 1e-4);
  if (options.save_best) watch(saving_, options.save_best->metric, 0);
}

EpochDecision Callbacks::end_of_epoch(int64_t epoch, const std::vector<Metric>& metrics, double learning_rate) {
  EpochDecision decision;
  decision.learning_rate = learning_rate;
  if (const double* value = stopping_ ? stopping_->value_in(metrics) : nullptr) {
    ++stopping_->waited;
    if (stopping_->improves(*value)) {
      stopping_->best = *value;
      stopping_->waited = 0;
      best_epoch = epoch;
      decision.keep_weights = options_.early_stopping->restore_best;
    } else if (stopping_->waited >= options_.early_stopping->patience && epoch > 0) {
      decision.stop = stopped_ = true;
      decision.notes.push_back(fmt::format("stopped early: {} has not improved on {:.4g} for {} epoch{}",
                                           stopping_->metric(), *stopping_->best, stopping_->waited,
                                           stopping_->waited == 1 ? "" : "s"));
    }
  }
  if (const double* value = saving_ ? saving_->value_in(metrics) : nullptr; value && saving_->improves(*value)) {
    saving_->best = *value;
    decision.save_model = true;
  }
  const double* value = plateau_ ? plateau_->value_in(metrics) : nullptr;
  if (value == nullptr) return decision;
  if (plateau_->improves(*value)) {
    plateau_->best = *value;
    plateau_->waited = 0;
  } else if (++plateau_->waited >= options_.reduce_lr->patience) {
    // Keras keeps the rate in a float32 variable.
    const auto old_rate = static_cast<double>(static_cast<float>(learning_rate));
    if (old_rate <= 0) return decision;
    decision.learning_rate = static_cast<double>(static_cast<float>(old_rate * options_.reduce_lr->factor));
    plateau_->waited = 0;
    decision.notes.push_back(fmt::format("epoch {}: {} has not improved on {:.4g}: learning rate is now {:g}, was {:g}",
                                         epoch + 1, plateau_->metric(), *plateau_->best, decision.learning_rate,
                                         old_rate));
  }
  return decision;
}

Json Callbacks::to_json() const {
  const auto state = [](const std::optional<Monitor>& monitor) { return monitor ? monitor->to_json() : Json(); };
  return json_object({{"early_stopping", state(stopping_)},
                      {"reduce_lr", state(plateau_)},
                      {"save_best", state(saving_)},
                      {"save_best_path", options_.save_best ? Json(options_.save_best->path) : Json()},
                      {"stopped", stopped_},
                      {"best_step", best_step ? Json(*best_step) : Json()},
                      {"best_epoch", best_epoch ? Json(*best_epoch) : Json()}});
}

bool Callbacks::read_early_stopping(const Json& json, std::vector<std::string>& notes) {
  const Json& state = member(json, "early_stopping");
  if (state.is_null()) return true;
  if (!state.is_object()) return false;
  if (member(state, "metric") != stopping_->metric()) {
    notes.push_back(fmt::format("--early-stopping watches {} from now on", stopping_->metric()));
    return true;
  }
  const Json &step = member(json, "best_step"), &epoch = member(json, "best_epoch");
  const auto number = whole_number(step, 0, kMostSteps), of_epoch = whole_number(epoch, 0, kMostSteps);
  if ((!number && !step.is_null()) || (!of_epoch && !epoch.is_null())) return false;
  if (options_.early_stopping->restore_best && !number && !member(state, "best").is_null()) {
    notes.push_back("restore-best: no weights were kept so far; the best epoch from now on will be restored");
    return true;
  }
  if (!stopping_->from_json(state)) return false;
  if (options_.early_stopping->restore_best) best_step = number;
  best_epoch = of_epoch;
  stopped_ = member(json, "stopped") == true && stopping_->waited >= options_.early_stopping->patience;
  return true;
}

bool Callbacks::from_json(const Json& json, std::vector<std::string>& notes) {
  if (!json.is_object()) return false;
  if (stopping_ && !read_early_stopping(json, notes)) return false;
  const auto read = [&](std::optional<Monitor>& monitor, const char* key, bool same, const char* flag) {
    const Json& state = member(json, key);
    if (!monitor || state.is_null()) return true;
    if (!state.is_object()) return false;
    if (same && member(state, "metric") == monitor->metric()) return monitor->from_json(state);
    notes.push_back(fmt::format("{} starts from the beginning: the checkpoint has another metric or file", flag));
    return true;
  };
  const bool same_file = options_.save_best && member(json, "save_best_path") == options_.save_best->path;
  return read(plateau_, "reduce_lr", true, "--reduce-lr-on-plateau") &&
         read(saving_, "save_best", same_file, "--save-best");
}

}  // namespace plimsoll::engine
