#include "model/objective.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "formats/keras/layer_paths.h"
#include "model/layer.h"
#include "model/traced_loss.h"

namespace plimsoll::engine {
namespace {

Reduction read_reduction(Config& c) {
  const Json* value = c.value("reduction");
  if (value == nullptr) return Reduction::kMean;
  const std::string text = c.choice(
      "reduction", {"sum_over_batch_size", "mean", "sum", "mean_with_sample_weight", "none"}, "sum_over_batch_size");
  if (text == "none") c.issues().unknown(fmt::format("{}: reduction=none, which gives a vector", c.where()));
  return text == "sum"                       ? Reduction::kSum
         : text == "mean_with_sample_weight" ? Reduction::kWeightedMean
                                             : Reduction::kMean;
}

bool is_traced_loss(const Json& value) {
  return text_member(value, "module") == kTracedModule && text_member(value, "class_name") == kTracedLoss;
}

std::optional<Loss> read_loss_of(const Json& value, const std::string& where, Issues& issues) {
  if (value.is_null()) return std::nullopt;
  const KerasObject object = keras_object(value);
  const bool traced = is_traced_loss(value);
  const LossClass* const kind = object.custom ? nullptr : find_loss(object.name);
  if (kind == nullptr && !traced) {
    issues.unknown(fmt::format("{}={}", where, object.name.empty() ? shown(value) : object.name));
    issues.remedy("--loss NAME   replaces the file's loss: mse, categorical_crossentropy or another of Keras's names");
    if (object.custom) issues.custom_code();
    return std::nullopt;
  }
  Config c(object.config, fmt::format("{} {}", where, object.name), issues);
  const Reduction reduction = read_reduction(c);
  std::optional<Loss> read = traced ? read_traced_loss(c) : read_loss(*kind, c);
  if (!read) return std::nullopt;
  Loss loss = std::move(*read);
  loss.reduction = reduction;
  c.ignore({"name"});
  check_policy(c);
  c.finish();
  return loss;
}

// Returns one entry per output for a value that is given once, as a list, or by output name. Null entries: not given.
std::vector<Json> per_output(const Json& given, const std::vector<std::string>& outputs, const std::string& what,
                             Issues& issues) {
  std::vector<Json> each(outputs.size());
  if (given.is_null()) return each;
  if (given.is_array()) {
    if (given.size() == outputs.size()) return given.get<std::vector<Json>>();
  } else if (given.is_object() && !is_keras_object(given)) {
    size_t used = 0;
    for (size_t i = 0; i < outputs.size(); ++i)
      if (const Json* one = member(given, outputs[i])) {
        each[i] = *one;
        ++used;
      }
    if (used == given.size()) return each;
  } else {
    std::fill(each.begin(), each.end(), given);
    return each;
  }
  issues.reject(fmt::format("compile_config: {} must be given for the outputs {}, got {}", what,
                            fmt::join(outputs, ", "), shown(given)));
  return each;
}

void read_losses(const Json& given, const Json& weights, const std::vector<std::string>& outputs, Objective& objective,
                 Issues& issues) {
  const std::vector<Json> losses = per_output(given, outputs, "loss", issues);
  if (given.is_object() && !is_keras_object(given) && given.size() != outputs.size())
    issues.reject(fmt::format("compile_config: loss must name every output of {}, got {}", fmt::join(outputs, ", "),
                              shown(given)));
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string where =
        outputs.size() == 1 ? "compile_config: loss" : fmt::format("compile_config: loss of '{}'", outputs[i]);
    objective.losses.push_back(read_loss_of(losses[i], where, issues));
  }
  objective.loss_weights.assign(outputs.size(), 1);
  const std::vector<Json> factors = per_output(weights, outputs, "loss_weights", issues);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (factors[i].is_null()) continue;
    if (const auto number = as_number(factors[i]))
      objective.loss_weights[i] = *number;
    else
      issues.reject(fmt::format("compile_config: a loss weight must be a number, got {}", shown(factors[i])));
  }
}

bool is_accuracy(const std::string& name) {
  const std::string lower = lower_case(name);
  return lower == "accuracy" || lower == "acc";
}

// A metric that cannot be computed does not make a model unsupported: it is marked as skipped, whatever its arguments.
MetricSpec read_metric(const Json& value, size_t output, bool weighted, Issues& issues) {
  const KerasObject object = keras_object(value);
  MetricSpec spec;
  spec.output = output;
  spec.weighted = weighted;
  spec.source = object.name.empty() ? shown(value) : object.name;
  // The class Accuracy compares for equality. Only the strings select the accuracy that fits the loss.
  spec.automatic = value.is_string() && is_accuracy(object.name);
  const std::string class_name = object.name == "LogCoshError" ? "LogCosh" : object.name;
  if (is_traced_loss(value)) {
    Config c(object.config, fmt::format("compile_config: metric {}", object.name), issues);
    spec.name = c.text("name", "metric");
    spec.loss = read_traced_loss(c);
    spec.skipped = !spec.loss;
    return spec;
  }
  const MetricClass* const kind = object.custom ? nullptr : find_metric(class_name);
  const LossClass* const loss = object.custom || kind != nullptr ? nullptr : find_loss(class_name);
  // Keras's name of a metric object without a name: its function's name, or its class name in snake case.
  spec.name = value.is_string() || object.function ? spec.source
              : loss != nullptr                    ? default_loss_name(*loss)
              : kind != nullptr                    ? std::string(kind->name)
                                                   : keras_snake_case(spec.source);
  Issues own;
  Config c(object.config, fmt::format("compile_config: metric {}", object.name), own);
  if (!value.is_string()) spec.name = c.text("name", spec.name);
  spec.skipped = kind == nullptr && loss == nullptr && !spec.automatic;
  if (spec.skipped) return spec;
  if (loss != nullptr) spec.loss = read_loss(*loss, c);
  if (kind != nullptr && !spec.automatic) spec.metric = kind->read(c);
  c.ignore({"name", "dtype"});
  c.finish();
  spec.skipped = !own.unsupported.empty();
  if (own.bad) issues.reject(own.bad->what);
  return spec;
}

// Collects the leaves of nested lists and maps in Keras's order: maps are sorted by key.
void flatten(const Json& value, std::vector<Json>& leaves) {
  if (value.is_array() || (value.is_object() && !is_keras_object(value))) {
    for (const auto& one : value) flatten(one, leaves);
  } else if (!value.is_null()) {
    leaves.push_back(value);
  }
}

void read_metrics(const Json& given, const std::vector<std::string>& outputs, bool weighted, Objective& objective,
                  Issues& issues) {
  if (given.is_null() || (given.is_structured() && given.empty())) return;
  std::vector<Json> each(1, given);
  if (outputs.size() > 1) each = per_output(given, outputs, weighted ? "weighted_metrics" : "metrics", issues);
  for (size_t i = 0; i < each.size(); ++i) {
    std::vector<Json> leaves;
    flatten(each[i], leaves);
    for (const Json& leaf : leaves) objective.metrics.push_back(read_metric(leaf, i, weighted, issues));
  }
}

// Sets the names that Keras reports (CompileMetrics.result): prefixed with the output's name if there are several
// outputs, and made unique.
void name_metrics(std::vector<MetricSpec>& metrics, const std::vector<std::string>& outputs) {
  std::map<std::string, int> seen;
  for (MetricSpec& metric : metrics) {
    const std::string prefix = outputs.size() > 1 ? outputs[metric.output] + "_" : "";
    std::string name = prefix + metric.name;
    if (seen.count(name) && metric.weighted) name = prefix + "weighted_" + metric.name;
    if (int& count = seen[name]; count++ > 0) name = fmt::format("{}_{}", name, count - 1);
    metric.name = name;
  }
}

Json flag_value(const std::string& text) {
  if (text.empty() || (text[0] != '{' && text[0] != '[')) return text;
  Json parsed = Json::parse(text, nullptr, false);
  return parsed.is_discarded() ? Json(text) : parsed;
}

}  // namespace

Objective read_objective(const Json& compile_config, const ModelOptions& options,
                         const std::vector<std::string>& outputs, Issues& issues) {
  const Json empty = Json::object();
  Config c(compile_config.is_null() ? empty : compile_config, "compile_config", issues);
  const auto given = [&](const char* key) {
    const Json* value = c.value(key);
    return value ? *value : Json();
  };
  Objective objective;
  const Json loss = given("loss"), metrics = given("metrics");
  read_losses(options.loss ? flag_value(*options.loss) : loss, given("loss_weights"), outputs, objective, issues);
  const bool none = options.metrics == std::vector<std::string>{kNoMetrics};
  if (options.metrics.empty()) {
    read_metrics(metrics, outputs, false, objective, issues);
  } else if (!none) {
    Json flags = Json::array();
    for (const std::string& name : options.metrics) flags.push_back(flag_value(name));
    Json each = Json::array();
    for (size_t i = 0; i < outputs.size(); ++i) each.push_back(flags);
    read_metrics(each, outputs, false, objective, issues);
  }
  const Json weighted = given("weighted_metrics");
  if (!none) read_metrics(weighted, outputs, true, objective, issues);
  name_metrics(objective.metrics, outputs);
  // These keys say how Keras runs a step, not what it computes. The optimizer is read elsewhere.
  c.ignore({"optimizer", "run_eagerly", "steps_per_execution", "jit_compile", "auto_scale_loss"});
  c.finish();
  return objective;
}

namespace {

// Returns the elements of a sample's target.
int64_t target_of(const Loss& loss, const Shape& output) {
  if (loss.traced) return loss.traced->target.elements();
  return target_kind(loss) == TargetKind::kLabels ? output.elements() / output.back() : output.elements();
}

// Chooses the accuracy that fits the loss, and returns whether the metric can be computed.
bool resolve(MetricSpec& spec, const Loss& loss, const Shape& output) {
  const bool labels = target_kind(loss) == TargetKind::kLabels;
  if (target_kind(loss) == TargetKind::kGroups || target_kind(loss) == TargetKind::kSequence) return false;
  if (spec.loss && spec.loss->traced)
    return check_loss(*spec.loss, output).empty() && spec.loss->traced->target.elements() == target_of(loss, output);
  if (spec.loss && target_kind(*spec.loss) == TargetKind::kSequence) return false;
  if (target_kind(loss) == TargetKind::kOwn && loss.traced->target != output) return false;
  if (spec.automatic) {
    const bool one = output.rank() > 0 && output.back() == 1;
    Issues issues;
    const Json none = Json::object();
    Config c(none, "accuracy", issues);
    spec.metric = find_metric(one      ? "BinaryAccuracy"
                              : labels ? "SparseCategoricalAccuracy"
                                       : "CategoricalAccuracy")
                      ->read(c);
    if (one && labels) return false;
  }
  if (spec.loss) {
    const bool wants = target_kind(*spec.loss) == TargetKind::kLabels;
    // Rows along another axis, and ignored rows of a weighted metric, would need another weight.
    return wants == labels && check_loss(*spec.loss, output).empty() && has_last_axis_rows(*spec.loss) &&
           !(spec.loss->ignored_class && spec.weighted);
  }
  if (spec.metric.check) return spec.metric.check(output, labels).empty();
  return !labels;
}

}  // namespace

void resolve_metrics(Objective& objective, std::span<const Shape> outputs) {
  for (MetricSpec& metric : objective.metrics) {
    const auto& loss = objective.losses[metric.output];
    metric.skipped = metric.skipped || !loss || !resolve(metric, *loss, outputs[metric.output]);
  }
  for (const MetricSpec& metric : objective.metrics)
    if (metric.skipped) objective.skipped_metrics.push_back(metric.name);
  std::erase_if(objective.metrics, [](const MetricSpec& metric) { return metric.skipped; });
}

}  // namespace plimsoll::engine
