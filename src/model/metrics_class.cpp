// Metrics from sums per class: F-scores, intersections over unions, R2 (keras/src/metrics/f_score_metrics.py,
// iou_metrics.py, regression_metrics.py).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "model/metrics.h"

namespace plimsoll::engine {
namespace {

constexpr double kEpsilon = 1e-7;  // keras.config.epsilon()
constexpr int64_t kMostClasses = 1024;

// Sums over the rows of [N,C], as a vector of C numbers.
Expression column_sums(const Expression& x) {
  return sum(x, {0}).reshaped({x.shape().back()});
}

std::string needs_vectors(const Shape& sample, bool labels) {
  return sample.rank() == 1 ? only_like_prediction(labels) : "it needs outputs of one dimension";
}

// The score of each class, from true positives, false positives, false negatives and weights of all classes.
std::vector<double> class_scores(std::span<const double> totals, size_t classes, double beta) {
  std::vector<double> scores;
  for (size_t i = 0; i < classes; ++i) {
    const double tp = totals[i], fp = totals[classes + i], fn = totals[2 * classes + i];
    const double precision = tp / (tp + fp + kEpsilon), recall = tp / (tp + fn + kEpsilon);
    scores.push_back(precision * recall / (beta * beta * precision + recall + kEpsilon) * (1 + beta * beta));
  }
  return scores;
}

double average_score(std::span<const double> sums, const std::string& average, double beta) {
  const size_t classes = sums.size() / 4;
  const auto total = [&](size_t kind) {
    const auto of_kind = sums.subspan(kind * classes, classes);
    return std::accumulate(of_kind.begin(), of_kind.end(), 0.0);
  };
  if (average == "micro") return class_scores(std::array{total(0), total(1), total(2)}, 1, beta)[0];
  const std::vector<double> scores = class_scores(sums, classes, beta);
  double mean = 0, weighted = 0;
  for (size_t i = 0; i < classes; ++i) {
    mean += scores[i] / static_cast<double>(classes);
    weighted += scores[i] * sums[3 * classes + i] / (total(3) + kEpsilon);
  }
  return average == "weighted" ? weighted : mean;
}

MetricFormula f_score(Config& c, double beta) {
  const std::string average = c.text("average", "");  // "": None, one score per class
  const auto threshold = c.optional_real("threshold");
  if (!average.empty() && average != "micro" && average != "macro" && average != "weighted")
    c.issues().unknown(fmt::format("{}: average={}", c.where(), average));
  MetricFormula metric;
  metric.check = needs_vectors;
  metric.sums = [=](const MetricCall& call) {
    Expression hit;
    if (threshold) {
      hit = greater(call.x, *threshold);
    } else {
      const Expression most = call.x.apply("reduce_max", {{"axes", std::vector<int64_t>{1}}});
      hit = plimsoll::engine::call("less_equal", most, call.x) * greater(plimsoll::engine::call("abs", call.x), 1e-9);
    }
    const Expression w = element_weights(call, call.x);
    return joined({column_sums(hit * call.y * w), column_sums(hit * (1 - call.y) * w),
                   column_sums((1 - hit) * call.y * w), column_sums(call.y * w)});
  };
  if (average.empty())
    metric.elements = [=](std::span<const double> sums) { return class_scores(sums, sums.size() / 4, beta); };
  else
    metric.result = [=](std::span<const double> sums) { return average_score(sums, average, beta); };
  return metric;
}

MetricFormula f1_score(Config& c) {
  return f_score(c, 1);
}

MetricFormula fbeta_score(Config& c) {
  const double beta = c.real("beta", 1);
  if (!(beta > 0)) c.issues().reject(fmt::format("{}: 'beta' must be above 0", c.where()));
  return f_score(c, beta);
}

struct Union {
  int64_t classes = 2;
  std::vector<int64_t> targets;
  std::optional<int64_t> ignored;
  bool sparse_target = true, sparse_prediction = true;
  std::optional<double> threshold;  // BinaryIoU
  bool whole_weights = true;        // Keras's default dtype of these metrics is an integer
};

// The class of each row. A number is truncated to its class.
Expression class_of(const Expression& x, bool sparse) {
  return sparse ? call("trunc", flattened(x)) : largest_index(x);
}

// The confusion matrix: true class times predicted class.
Expression confusion(const Union& u, const MetricCall& c) {
  const DType dtype = c.x.type().dtype;
  const bool labels = c.y.type().dtype == DType::kInt32;
  const Expression y = labels ? c.y.cast(dtype) : class_of(c.y, u.sparse_target);
  const Expression x = u.threshold ? flattened(greater_equal(c.x, *u.threshold)) : class_of(c.x, u.sparse_prediction);
  const auto inside = [&](const Expression& v) {
    return greater_equal(v, 0) * less(v, static_cast<double>(u.classes));
  };
  Expression valid = inside(y) * inside(x);
  if (u.ignored) valid = valid * (1 - equal(y, static_cast<double>(*u.ignored)));
  Expression weights = element_weights(c, y);
  if (u.whole_weights && c.weights) weights = call("trunc", weights);
  const Expression index = select(valid, y * static_cast<double>(u.classes) + x, y.filled(0));
  return histogram(valid * weights, index, u.classes * u.classes);
}

double mean_union(const Union& u, std::span<const double> matrix) {
  const auto classes = static_cast<size_t>(u.classes);
  double total = 0, present = 0;
  for (const int64_t target : u.targets) {
    const auto t = static_cast<size_t>(target);
    double row = 0, column = 0;
    for (size_t i = 0; i < classes; ++i) {
      row += matrix[t * classes + i];
      column += matrix[i * classes + t];
    }
    const double hit = matrix[t * classes + t], either = row + column - hit;
    if (either <= 1e-9) continue;
    ++present;
    total += hit / (either + kEpsilon);
  }
  return total / (present + kEpsilon);
}

void read_classes(Config& c, Union& u, bool all) {
  u.classes = c.integer("num_classes", 1, kMostClasses);
  u.classes = std::clamp<int64_t>(u.classes, 1, kMostClasses);
  if (all) {
    for (int64_t i = 0; i < u.classes; ++i) u.targets.push_back(i);
  }
}

void read_targets(Config& c, Union& u) {
  const Json* value = c.value("target_class_ids");
  if (value == nullptr) return;
  for (const Json& one : value->is_array() ? *value : Json::array({*value})) {
    const auto id = as_integer(one);
    if (!id || *id < 0 || *id >= u.classes)
      c.issues().reject(
          fmt::format("{}: 'target_class_ids' must lie below {}, got {}", c.where(), u.classes, shown(*value)));
    else
      u.targets.push_back(*id);
  }
}

MetricFormula union_metric(Config& c, Union u) {
  c.only("axis", {-1});
  if (c.value("ignore_class") != nullptr)
    u.ignored = c.integer("ignore_class", -(int64_t{1} << 24), int64_t{1} << 24, 0);
  const std::string dtype = c.text("dtype", "int");
  u.whole_weights = dtype.starts_with("int");
  MetricFormula metric;
  metric.check = [u](const Shape& sample, bool labels) -> std::string {
    if (labels && (!u.sparse_target || u.sparse_prediction))
      return "its targets are labels, but its predictions are not";
    if (!labels && u.sparse_target != u.sparse_prediction) return "its targets and predictions have different shapes";
    return sample.rank() == 0 ? "its output has no dimension" : "";
  };
  metric.sums = [u](const MetricCall& call) { return confusion(u, call); };
  metric.result = [u](std::span<const double> matrix) { return mean_union(u, matrix); };
  return metric;
}

MetricFormula iou(Config& c) {
  Union u;
  read_classes(c, u, false);
  read_targets(c, u);
  u.sparse_target = c.flag("sparse_y_true", true);
  u.sparse_prediction = c.flag("sparse_y_pred", true);
  return union_metric(c, u);
}

MetricFormula mean_iou(Config& c) {
  Union u;
  read_classes(c, u, true);
  u.sparse_target = c.flag("sparse_y_true", true);
  u.sparse_prediction = c.flag("sparse_y_pred", true);
  return union_metric(c, u);
}

MetricFormula one_hot_iou(Config& c, bool all) {
  Union u;
  read_classes(c, u, all);
  if (!all) read_targets(c, u);
  u.sparse_target = false;
  u.sparse_prediction = c.flag("sparse_y_pred", false);
  return union_metric(c, u);
}

MetricFormula binary_iou(Config& c) {
  Union u;
  u.threshold = c.real("threshold", 0.5);
  read_targets(c, u);
  if (u.targets.empty()) u.targets = {0, 1};
  c.ignore({"num_classes", "sparse_y_true", "sparse_y_pred"});
  return union_metric(c, u);
}

// R2 of each class, from the sums of [y, y^2, squared errors, weights, ones] of all classes.
struct R2 {
  std::vector<double> scores;
  double mean = 0, weighted = 0, spread = 0, samples = 0;

  explicit R2(std::span<const double> sums) {
    const size_t classes = sums.size() / 5;
    for (size_t i = 0; i < classes; ++i) {
      const double total = sums[classes + i] - sums[i] * sums[i] / sums[3 * classes + i];
      double score = 1 - sums[2 * classes + i] / total;
      if (std::isinf(score)) score = 0;
      scores.push_back(score);
      mean += score / static_cast<double>(classes);
      weighted += total * score;
      spread += total;
      samples += sums[4 * classes + i];
    }
  }

  double adjusted(double score, double regressors) const {
    if (regressors == 0 || regressors >= samples - 1) return score;
    return 1 - (1 - score) * (samples - 1) / (samples - regressors - 1);
  }
  std::vector<double> adjusted_each(double regressors) const {
    std::vector<double> made;
    for (const double score : scores) made.push_back(adjusted(score, regressors));
    return made;
  }
};

MetricFormula r2_score(Config& c) {
  const bool each = c.is_null("class_aggregation");  // one score per class
  const std::string average = c.text("class_aggregation", "uniform_average");
  if (average != "uniform_average" && average != "variance_weighted_average")
    c.issues().unknown(fmt::format("{}: class_aggregation={}", c.where(), average));
  const auto regressors = static_cast<double>(c.integer("num_regressors", 0, int64_t{1} << 31, 0));
  MetricFormula metric;
  metric.check = needs_vectors;
  metric.sums = [](const MetricCall& call) {
    const Expression w = element_weights(call, call.y), weighted = call.y * w;
    return joined({column_sums(weighted), column_sums(call.y * weighted),
                   column_sums(plimsoll::engine::call("square", call.y - call.x) * w), column_sums(w),
                   column_sums(call.y.filled(1))});
  };
  if (each)
    metric.elements = [=](std::span<const double> sums) { return R2(sums).adjusted_each(regressors); };
  else
    metric.result = [=](std::span<const double> sums) {
      const R2 r2(sums);
      return r2.adjusted(average == "uniform_average" ? r2.mean : r2.weighted / r2.spread, regressors);
    };
  return metric;
}

}  // namespace

std::span<const MetricClass> class_metrics() {
  static constexpr MetricClass kMetrics[] = {
      {"F1Score", "f1_score", "f1_score", f1_score},
      {"FBetaScore", "fbeta_score", "fbeta_score", fbeta_score},
      {"IoU", "io_u", "io_u", iou},
      {"MeanIoU", "mean_io_u", "mean_io_u", mean_iou},
      {"BinaryIoU", "binary_io_u", "binary_io_u", binary_iou},
      {"OneHotIoU", "one_hot_io_u", "one_hot_io_u", [](Config& c) { return one_hot_iou(c, false); }},
      {"OneHotMeanIoU", "one_hot_mean_io_u", "one_hot_mean_io_u", [](Config& c) { return one_hot_iou(c, true); }},
      {"R2Score", "r2_score", "r2_score", r2_score},
  };
  return kMetrics;
}

}  // namespace plimsoll::engine
