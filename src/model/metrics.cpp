// Metrics that are means over rows, and the helpers that all metrics share.
#include "model/metrics.h"

#include <fmt/format.h>

#include <cmath>

namespace plimsoll::engine {

Expression flattened(const Expression& x) {
  return x.reshaped({x.shape().elements()});
}

Expression element_weights(const MetricCall& call, const Expression& x) {
  if (!call.weights) return x.filled(1);
  std::vector<int64_t> dims(x.shape().rank(), 1);
  dims[0] = call.weights->shape()[0];
  // Rows of several dimensions that were flattened share a sample's weight.
  if (x.shape()[0] != dims[0]) {
    const int64_t each = x.shape().elements() / dims[0];
    return call.weights->reshaped({dims[0], 1}).broadcast(Shape{dims[0], each}).reshaped(x.shape().dims);
  }
  return call.weights->reshaped(dims).broadcast(x.shape());
}

Expression histogram(const Expression& values, const Expression& indices, int64_t size) {
  return values.apply("scatter_add", indices.cast(DType::kInt32), {{"size", size}, {"axis", int64_t{0}}});
}

Expression joined(const std::vector<Expression>& vectors) {
  if (vectors.size() == 1) return vectors[0];
  GraphBuilder& b = vectors[0].builder();
  std::vector<ValueId> ids;
  for (const Expression& one : vectors) ids.push_back(one.id());
  return {b, b.add1("concat", std::move(ids), {{"axis", int64_t{0}}})};
}

Expression largest_index(const Expression& x) {
  const auto last = static_cast<int64_t>(x.shape().rank()) - 1;
  return flattened(x.apply("arg_max", {{"axis", last}}).cast(x.type().dtype));
}

std::string only_like_prediction(bool labels) {
  return labels ? "it needs targets of the prediction's shape" : "";
}

namespace {

Expression last_axis_mean(const Expression& x) {
  return flattened(mean(x, {static_cast<int64_t>(x.shape().rank()) - 1}));
}

std::string needs_labels(bool labels) {
  return labels ? "" : "it needs one integer label per row";
}

MetricFormula mean_of(std::function<Expression(const MetricCall&)> rows) {
  MetricFormula metric;
  metric.rows = std::move(rows);
  return metric;
}

MetricFormula match(const char* kind, bool labels) {
  MetricFormula metric = mean_of([=](const MetricCall& c) {
    return c.x.apply("match", c.y, {{"kind", std::string(kind)}});
  });
  metric.check = [=](const Shape&, bool given) { return labels ? needs_labels(given) : only_like_prediction(given); };
  return metric;
}

MetricFormula binary_accuracy(Config& c) {
  const double threshold = c.real("threshold", 0.5);
  return mean_of([=](const MetricCall& call) {
    return call.x.apply("match", call.y, {{"kind", std::string("binary")}, {"threshold", threshold}});
  });
}

MetricFormula accuracy(Config&) {
  return mean_of([](const MetricCall& c) { return last_axis_mean(c.x.apply("equal", c.y)); });
}

// Whether fewer than k classes have a larger score than the true one.
Expression in_top(const Expression& x, const Expression& labels, int64_t k) {
  const auto last = static_cast<int64_t>(x.shape().rank()) - 1;
  const Expression chosen =
      labels.apply("one_hot", {{"depth", x.shape().back()}, {"dtype", std::string(name_of(x.type().dtype))}})
          .reshaped(x.shape().dims);
  const Expression score = sum(x * chosen, {last});
  const Expression above = sum(less(score.broadcast(x.shape()), x), {last});
  return flattened(less(above, static_cast<double>(k)));
}

int64_t read_k(Config& c) {
  return c.integer("k", 1, int64_t{1} << 31, 5);
}

MetricFormula top_k(Config& c) {
  return mean_of(
      [k = read_k(c)](const MetricCall& call) { return in_top(call.x, largest_index(call.y).cast(DType::kInt32), k); });
}

MetricFormula sparse_top_k(Config& c) {
  c.only("from_sorted_ids", {false});
  MetricFormula metric = mean_of([k = read_k(c)](const MetricCall& call) { return in_top(call.x, call.y, k); });
  metric.check = [](const Shape&, bool labels) { return needs_labels(labels); };
  return metric;
}

MetricFormula root_mean_squared_error(Config&) {
  MetricFormula metric = mean_of([](const MetricCall& c) { return c.x.apply("squared_error", c.y); });
  metric.of_mean = [](double mean) { return std::sqrt(mean); };
  metric.larger_is_better = false;
  return metric;
}

// An axis of a correlation or similarity; any but the batch.
int64_t read_axis(Config& c) {
  return c.integer("axis", -8, 8, -1);
}

// Returns a metric over one axis. `formula` gets prediction, target and the axis.
MetricFormula along_axis(Config& c, Expression (*formula)(const Expression&, const Expression&, int64_t)) {
  const int64_t axis = read_axis(c);
  const auto positive = [axis](size_t rank) { return axis < 0 ? axis + static_cast<int64_t>(rank) : axis; };
  MetricFormula metric = mean_of([=](const MetricCall& call) {
    const Expression values = formula(call.x, call.y, positive(call.x.shape().rank()));
    const int64_t rows = call.x.shape().elements() / call.x.shape().back();
    // A sample's rows count as one mean, so only their mean over the sample matters.
    const int64_t samples = call.x.shape()[0], each = values.shape().elements() / samples;
    const Expression per_sample = mean(values.reshaped({samples, each}), {1});
    return per_sample.broadcast(Shape{samples, rows / samples}).reshaped({rows});
  });
  metric.one_per_sample = true;
  metric.check = [=](const Shape& sample, bool labels) -> std::string {
    const int64_t at = positive(sample.rank() + 1);
    if (at < 1 || at > static_cast<int64_t>(sample.rank())) return "its axis does not fit the output";
    return only_like_prediction(labels);
  };
  return metric;
}

constexpr double kEpsilon = 1e-7;

MetricFormula cosine_similarity(Config& c) {
  return along_axis(c, [](const Expression& x, const Expression& y, int64_t axis) {
    const auto unit = [&](const Expression& v) {
      return v * minimum(call("rsqrt", sum(call("square", v), {axis})), 1 / kEpsilon);
    };
    return sum(unit(y) * unit(x), {axis});
  });
}

Expression centred(const Expression& v, int64_t axis) {
  return v - mean(v, {axis});
}

MetricFormula pearson_correlation(Config& c) {
  return along_axis(c, [](const Expression& x, const Expression& y, int64_t axis) {
    const auto standard = [&](const Expression& v) {
      const Expression around = centred(v, axis);
      return around / call("sqrt", mean(call("square", around), {axis}));
    };
    return mean(standard(y) * standard(x), {axis});
  });
}

// As in Keras, the covariance is taken around the prediction's mean for both.
MetricFormula concordance_correlation(Config& c) {
  return along_axis(c, [](const Expression& x, const Expression& y, int64_t axis) {
    const Expression mean_x = mean(x, {axis}), mean_y = mean(y, {axis});
    const auto variance = [&](const Expression& v) { return mean(call("square", centred(v, axis)), {axis}); };
    const Expression norm = variance(y) + variance(x) + call("square", mean_y - mean_x);
    return mean((y - mean_x) * (x - mean_x) * 2 / (norm + kEpsilon), {axis});
  });
}

}  // namespace

std::span<const MetricClass> mean_metrics() {
  static constexpr MetricClass kMetrics[] = {
      {"Accuracy", "", "accuracy", accuracy},
      {"BinaryAccuracy", "binary_accuracy", "binary_accuracy", binary_accuracy},
      {"CategoricalAccuracy", "categorical_accuracy", "categorical_accuracy",
       [](Config&) { return match("categorical", false); }},
      {"SparseCategoricalAccuracy", "sparse_categorical_accuracy", "sparse_categorical_accuracy",
       [](Config&) { return match("sparse", true); }},
      {"TopKCategoricalAccuracy", "top_k_categorical_accuracy", "top_k_categorical_accuracy", top_k},
      {"SparseTopKCategoricalAccuracy", "sparse_top_k_categorical_accuracy", "sparse_top_k_categorical_accuracy",
       sparse_top_k},
      {"RootMeanSquaredError", "root_mean_squared_error", "root_mean_squared_error", root_mean_squared_error},
      {"CosineSimilarity", "cosine_similarity", "cosine_similarity", cosine_similarity},
      {"PearsonCorrelation", "pearson_correlation", "pearson_correlation", pearson_correlation},
      {"ConcordanceCorrelation", "concordance_correlation", "concordance_correlation", concordance_correlation},
  };
  return kMetrics;
}

const MetricClass* find_metric(std::string_view name) {
  for (const auto& table : {mean_metrics(), threshold_metrics(), class_metrics()})
    for (const MetricClass& one : table)
      if (name == one.class_name || (!one.function.empty() && name == one.function)) return &one;
  return nullptr;
}

std::vector<std::string> all_metric_names() {
  std::vector<std::string> names;
  for (const auto& table : {mean_metrics(), threshold_metrics(), class_metrics()})
    for (const MetricClass& one : table) {
      names.emplace_back(one.class_name);
      if (!one.function.empty()) names.emplace_back(one.function);
    }
  return names;
}

}  // namespace plimsoll::engine
