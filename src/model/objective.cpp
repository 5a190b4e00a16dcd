#include "model/objective.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "formats/keras/layer_paths.h"
#include "model/layer.h"

namespace plimsoll::engine {
namespace {

struct LossName {
  std::string_view function, class_name, short_name;
  LossKind kind;
};
constexpr LossName kLossNames[] = {
    {"sparse_categorical_crossentropy", "SparseCategoricalCrossentropy", "", LossKind::kSparseCrossEntropy},
    {"categorical_crossentropy", "CategoricalCrossentropy", "", LossKind::kCrossEntropy},
    {"binary_crossentropy", "BinaryCrossentropy", "bce", LossKind::kBinaryCrossEntropy},
    {"mean_squared_error", "MeanSquaredError", "mse", LossKind::kSquaredError},
    {"mean_absolute_error", "MeanAbsoluteError", "mae", LossKind::kAbsoluteError},
};

std::optional<LossKind> loss_kind(const std::string& name) {
  for (const LossName& n : kLossNames) {
    if (name == n.function || name == n.class_name) return n.kind;
    if (n.short_name.empty()) continue;
    std::string upper(n.short_name);
    std::transform(upper.begin(), upper.end(), upper.begin(), [](char c) { return static_cast<char>(c - 'a' + 'A'); });
    if (name == n.short_name || name == upper) return n.kind;
  }
  return std::nullopt;
}

// Reads the arguments shared by losses and the metrics based on them.
Loss read_loss_config(LossKind kind, Config& c) {
  Loss loss{kind, false, 0};
  const bool entropy =
      kind == LossKind::kSparseCrossEntropy || kind == LossKind::kCrossEntropy || kind == LossKind::kBinaryCrossEntropy;
  if (entropy) {
    loss.from_logits = c.flag("from_logits", false);
    c.only("axis", {-1});
  }
  if (kind == LossKind::kSparseCrossEntropy) c.only("ignore_class");
  if (kind == LossKind::kCrossEntropy || kind == LossKind::kBinaryCrossEntropy) {
    loss.label_smoothing = c.real("label_smoothing", 0);
    if (loss.label_smoothing < 0 || loss.label_smoothing > 1)
      c.issues().reject(fmt::format("{}: 'label_smoothing' must lie between 0 and 1", c.where()));
  }
  c.ignore({"name"});
  check_policy(c);
  return loss;
}

std::optional<Loss> read_loss(const Json& value, const std::string& where, Issues& issues) {
  if (value.is_null()) return std::nullopt;
  const KerasObject object = keras_object(value);
  const auto kind = loss_kind(object.name);
  if (!kind || object.custom) {
    issues.unknown(fmt::format("{}={}", where, object.name.empty() ? shown(value) : object.name));
    issues.remedy(
        "--loss NAME   replaces the file's loss: sparse_categorical_crossentropy, "
        "categorical_crossentropy, binary_crossentropy, mse or mae");
    if (object.custom) issues.custom_code();
    return std::nullopt;
  }
  Config c(object.config, fmt::format("{} {}", where, object.name), issues);
  c.only("reduction", {"sum_over_batch_size", "mean"});
  const Loss loss = read_loss_config(*kind, c);
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
    objective.losses.push_back(read_loss(losses[i], where, issues));
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

std::optional<MetricSpec::Kind> match_kind(const std::string& name) {
  if (name == "binary_accuracy" || name == "BinaryAccuracy") return MetricSpec::Kind::kBinary;
  if (name == "categorical_accuracy" || name == "CategoricalAccuracy") return MetricSpec::Kind::kCategorical;
  if (name == "sparse_categorical_accuracy" || name == "SparseCategoricalAccuracy") return MetricSpec::Kind::kSparse;
  return std::nullopt;
}

bool is_accuracy(const std::string& name) {
  const std::string lower = lower_case(name);
  return lower == "accuracy" || lower == "acc";
}

// Returns Keras's name of a metric object without a name: its function's name, or its class name in snake case.
std::string default_name(const std::string& name) {
  for (const LossName& n : kLossNames)
    if (name == n.class_name) return std::string(n.function);
  return keras_snake_case(name);
}

// A metric that cannot be computed does not make a model unsupported: it is marked as skipped, whatever its arguments.
MetricSpec read_metric(const Json& value, size_t output, bool weighted, Issues& issues) {
  const KerasObject object = keras_object(value);
  MetricSpec metric;
  metric.output = output;
  metric.weighted = weighted;
  metric.source = object.name.empty() ? shown(value) : object.name;
  metric.name = value.is_string() || object.function ? metric.source : default_name(metric.source);
  const auto loss = loss_kind(object.name);
  const auto match = match_kind(object.name);
  // The class Accuracy compares for equality. Only the strings select the accuracy that fits the loss.
  const bool automatic = value.is_string() && is_accuracy(object.name);
  Issues own;
  Config c(object.config, fmt::format("compile_config: metric {}", object.name), own);
  if (!value.is_string()) metric.name = c.text("name", metric.name);
  metric.skipped = object.custom || (!loss && !match && !automatic);
  if (metric.skipped) return metric;
  if (loss) {
    metric.kind = MetricSpec::Kind::kLoss;
    metric.loss = read_loss_config(*loss, c);
  } else {
    metric.kind = automatic ? MetricSpec::Kind::kAccuracy : *match;
    if (metric.kind == MetricSpec::Kind::kBinary) metric.threshold = c.real("threshold", 0.5);
    check_policy(c);
  }
  c.finish();
  metric.skipped = !own.unsupported.empty();
  if (own.bad) issues.reject(own.bad->what);
  return metric;
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

std::string to_text(LossKind kind) {
  for (const LossName& n : kLossNames)
    if (n.kind == kind) return std::string(n.function);
  return "";
}

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

void resolve_metrics(Objective& objective, std::span<const Shape> outputs) {
  for (MetricSpec& metric : objective.metrics) {
    const auto& loss = objective.losses[metric.output];
    metric.skipped = metric.skipped || !loss;
    if (metric.skipped) continue;
    const bool sparse = loss->kind == LossKind::kSparseCrossEntropy;
    const Shape& output = outputs[metric.output];
    if (metric.kind == MetricSpec::Kind::kAccuracy) {
      const bool one = output.rank() > 0 && output.back() == 1;
      metric.kind = one      ? MetricSpec::Kind::kBinary
                    : sparse ? MetricSpec::Kind::kSparse
                             : MetricSpec::Kind::kCategorical;
    }
    const bool wants_sparse =
        metric.kind == MetricSpec::Kind::kSparse ||
        (metric.kind == MetricSpec::Kind::kLoss && metric.loss.kind == LossKind::kSparseCrossEntropy);
    metric.skipped = sparse != wants_sparse;
  }
  for (const MetricSpec& metric : objective.metrics)
    if (metric.skipped) objective.skipped_metrics.push_back(metric.name);
  std::erase_if(objective.metrics, [](const MetricSpec& metric) { return metric.skipped; });
}

namespace {

// Returns the input of the softmax or sigmoid that produced `value`; kNone if neither did.
ValueId logits_behind(const Graph& graph, ValueId value) {
  const NodeId producer = graph.value(value).producer;
  if (producer == kNone) return kNone;
  const Node& node = graph.node(producer);
  return node.op == "softmax" || node.op == "sigmoid" ? node.inputs[0] : kNone;
}

}  // namespace

ValueId add_loss_rows(GraphBuilder& b, const Loss& loss, ValueId prediction, ValueId target) {
  if (loss.kind == LossKind::kSquaredError) return b.add1("squared_error", {prediction, target});
  if (loss.kind == LossKind::kAbsoluteError) return b.add1("absolute_error", {prediction, target});
  const ValueId logits = logits_behind(b.graph(), prediction);
  const ValueId x = logits == kNone ? prediction : logits;
  const bool from_logits = loss.from_logits || logits != kNone;
  if (loss.kind == LossKind::kBinaryCrossEntropy)
    return b.add1("binary_cross_entropy", {x, target},
                  {{"from_logits", from_logits}, {"label_smoothing", loss.label_smoothing}});
  return b.add1(from_logits ? "softmax_cross_entropy" : "cross_entropy", {x, target},
                {{"sparse", loss.kind == LossKind::kSparseCrossEntropy}, {"label_smoothing", loss.label_smoothing}});
}

ValueId add_metric_rows(GraphBuilder& b, const MetricSpec& metric, ValueId prediction, ValueId target) {
  switch (metric.kind) {
    case MetricSpec::Kind::kLoss:
      return add_loss_rows(b, metric.loss, prediction, target);
    case MetricSpec::Kind::kSparse:
      return b.add1("match", {prediction, target}, {{"kind", std::string("sparse")}});
    case MetricSpec::Kind::kCategorical:
      return b.add1("match", {prediction, target}, {{"kind", std::string("categorical")}});
    case MetricSpec::Kind::kBinary:
    case MetricSpec::Kind::kAccuracy:
      break;
  }
  assert(metric.kind == MetricSpec::Kind::kBinary);
  return b.add1("match", {prediction, target}, {{"kind", std::string("binary")}, {"threshold", metric.threshold}});
}

}  // namespace plimsoll::engine
