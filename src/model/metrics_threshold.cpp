// Metrics from counts of true and false positives and negatives at thresholds
// (keras/src/metrics/confusion_metrics.py, metrics_utils.py).
//
// The device makes two histograms, of positive and of negative labels: prediction i adds its weight to the number of
// thresholds below it. The counts at each threshold are sums of these.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/metrics.h"

namespace plimsoll::engine {
namespace {

constexpr double kEpsilon = 1e-7;   // keras.config.epsilon()
constexpr double kOutside = -1e10;  // Keras's NEG_INF, the score of classes outside of the top k
constexpr size_t kMostUneven = 64;  // each threshold that is not part of an even division is one comparison
constexpr int64_t kMostThresholds = 1 << 16;

struct Thresholds {
  std::vector<double> values;  // ascending
  bool even = false;           // 0, 1/n, 2/n, ..., 1: predictions are clipped to [0, 1] and divided into buckets
  bool around = false;         // even, with the first below 0 and the last above 1
  std::optional<int64_t> class_id, top_k;
  bool logits = false, multi_label = false;

  int64_t buckets() const { return static_cast<int64_t>(values.size()) + (even ? 0 : 1); }
};

bool is_even(const std::vector<double>& values) {
  if (values.size() < 3) return false;
  for (size_t i = 0; i < values.size(); ++i) {
    const double even = static_cast<double>(i) / static_cast<double>(values.size() - 1);
    if (std::abs(values[i] - even) > kEpsilon + 1e-5 * even) return false;
  }
  return true;
}

std::vector<double> even_thresholds(int64_t count) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<double>(i) / static_cast<double>(count - 1));
  return values;
}

// Reads `thresholds`, a number or a list; nothing if it is missing.
std::optional<std::vector<double>> read_list(Config& c) {
  const Json* value = c.value("thresholds");
  if (value == nullptr) return std::nullopt;
  std::vector<double> list;
  for (const Json& one : value->is_array() ? *value : Json::array({*value})) {
    const auto number = as_number(one);
    if (!number || *number < 0 || *number > 1) {
      c.issues().reject(fmt::format("{}: 'thresholds' must lie between 0 and 1, got {}", c.where(), shown(*value)));
      return std::vector<double>{0.5};
    }
    list.push_back(*number);
  }
  if (list.empty()) list.push_back(0.5);
  return list;
}

void read_selection(Config& c, Thresholds& t) {
  constexpr int64_t kMost = int64_t{1} << 31;
  if (c.value("class_id") != nullptr) t.class_id = c.integer("class_id", 0, kMost, 0);
  if (c.value("top_k") != nullptr) t.top_k = c.integer("top_k", 1, kMost, 1);
}

// Only the k largest scores of a row keep their value.
Expression only_top(const Expression& x, int64_t k) {
  GraphBuilder& b = x.builder();
  const auto rank = static_cast<int64_t>(x.shape().rank());
  const Expression index(b, b.add("top_k", {x.id()}, {{"k", k}})[1]);
  const Expression marks =
      index.apply("one_hot", {{"depth", x.shape().back()}, {"dtype", std::string(name_of(x.type().dtype))}});
  const Expression chosen = sum(marks, {rank - 1}).reshaped(x.shape().dims);
  return x * chosen + (1 - chosen) * kOutside;
}

Expression of_class(const Expression& x, int64_t id) {
  return x.apply("slice", {{"axis", static_cast<int64_t>(x.shape().rank()) - 1}, {"begin", id}, {"size", int64_t{1}}});
}

// The number of the bucket of each prediction.
Expression bucket_of(const Thresholds& t, const Expression& x) {
  if (t.even) return call("ceil", clip(x, 0, 1) * static_cast<double>(t.values.size() - 1));
  Expression below = greater(x, t.values[0]);
  for (size_t i = 1; i < t.values.size(); ++i) below = below + greater(x, t.values[i]);
  return below;
}

Expression histograms(const Thresholds& t, const MetricCall& c) {
  Expression x = t.logits ? call("sigmoid", c.x) : c.x, y = c.y;
  if (t.top_k) x = only_top(x, *t.top_k);
  if (t.class_id) {
    x = of_class(x, *t.class_id);
    y = of_class(y, *t.class_id);
  }
  const Expression positive = 1 - equal(y, 0), weights = element_weights(c, x);
  Expression bucket = bucket_of(t, x);
  int64_t size = t.buckets();
  if (t.multi_label) {
    GraphBuilder& b = x.builder();
    const Expression label(
        b, b.add1("iota", {},
                  {{"shape", x.shape().dims}, {"axis", int64_t{1}}, {"dtype", std::string(name_of(x.type().dtype))}}));
    bucket = bucket + label * static_cast<double>(size);
    size *= x.shape()[1];
  }
  const Expression index = flattened(bucket);
  return joined({histogram(flattened(positive * weights), index, size),
                 histogram(flattened((1 - positive) * weights), index, size)});
}

// Counts at each threshold.
struct Counts {
  std::vector<double> tp, fp, tn, fn;
};

Counts counts_of(const Thresholds& t, std::span<const double> positive, std::span<const double> negative) {
  const size_t thresholds = t.values.size();
  Counts counts{std::vector<double>(thresholds), std::vector<double>(thresholds), std::vector<double>(thresholds),
                std::vector<double>(thresholds)};
  // A prediction in bucket i is above the first i thresholds; with `around`, also above the first if i is 0.
  double tp = 0, fp = 0;
  for (size_t i = positive.size(); i-- > 0;) {
    tp += positive[i];
    fp += negative[i];
    const size_t threshold = i == 0 ? 0 : i - 1;
    if (threshold >= thresholds || (i == 0 && !t.around)) continue;
    counts.tp[threshold] = tp;
    counts.fp[threshold] = fp;
  }
  for (size_t i = 0; i < thresholds; ++i) {
    counts.fn[i] = tp - counts.tp[i];
    counts.tn[i] = fp - counts.fp[i];
  }
  return counts;
}

double share(double part, double whole) {
  return whole == 0 ? 0 : part / whole;
}

// A metric without the function that makes a number, or a vector, of the counts.
MetricFormula counting(const Thresholds& t) {
  MetricFormula metric;
  metric.check = [t](const Shape& sample, bool labels) -> std::string {
    if (sample.rank() == 0) return "its output has no dimension";
    if (t.class_id && *t.class_id >= sample.back()) return "its class_id is outside of the output";
    if (t.top_k && *t.top_k > sample.back()) return "its top_k is larger than the output";
    if (t.multi_label && sample.rank() != 1) return "multi_label needs outputs of one dimension";
    return only_like_prediction(labels);
  };
  metric.sums = [t](const MetricCall& call) { return histograms(t, call); };
  return metric;
}

Counts counts_of(const Thresholds& t, std::span<const double> sums) {
  const size_t half = sums.size() / 2;
  return counts_of(t, sums.first(half), sums.subspan(half));
}

using Finish = std::function<double(const Counts&)>;

MetricFormula threshold_metric(const Thresholds& t, Finish finish) {
  MetricFormula metric = counting(t);
  metric.result = [t, finish = std::move(finish)](std::span<const double> sums) { return finish(counts_of(t, sums)); };
  return metric;
}

using Curve = std::function<double(const Counts&, size_t)>;

// A metric of the counts at each of `thresholds`. Keras reports a vector if there are several.
MetricFormula at_each_threshold(Config& c, double otherwise, Thresholds t, Curve curve) {
  const std::vector<double> given = read_list(c).value_or(std::vector<double>{otherwise});
  t.values = given;
  std::sort(t.values.begin(), t.values.end());
  t.even = t.around = is_even(given);
  if (!t.even && t.values.size() > kMostUneven)
    c.issues().unknown(fmt::format("{}: more than {} uneven thresholds", c.where(), kMostUneven));
  if (given.size() == 1) return threshold_metric(t, [curve](const Counts& n) { return curve(n, 0); });
  MetricFormula metric = counting(t);
  metric.elements = [=](std::span<const double> sums) {
    const Counts counts = counts_of(t, sums);
    std::vector<double> made;
    for (const double one : given) {
      const auto at = std::lower_bound(t.values.begin(), t.values.end(), one) - t.values.begin();
      made.push_back(curve(counts, static_cast<size_t>(at)));
    }
    return made;
  };
  return metric;
}

template <double (*kCount)(const Counts&, size_t)>
MetricFormula count(Config& c) {
  MetricFormula metric = at_each_threshold(c, 0.5, {}, kCount);
  metric.larger_is_better = false;
  return metric;
}

template <double (*kShare)(const Counts&, size_t)>
MetricFormula selected(Config& c) {
  Thresholds selection;
  read_selection(c, selection);
  return at_each_threshold(c, selection.top_k ? kOutside : 0.5, selection, kShare);
}

double recall_at(const Counts& n, size_t i) {
  return share(n.tp[i], n.tp[i] + n.fn[i]);
}
double precision_at(const Counts& n, size_t i) {
  return share(n.tp[i], n.tp[i] + n.fp[i]);
}
double specificity_at(const Counts& n, size_t i) {
  return share(n.tn[i], n.tn[i] + n.fp[i]);
}

// The largest `wanted` among the thresholds where `bounded` is at least the value of `key`.
MetricFormula best_under(Config& c, const char* key, Curve bounded, Curve wanted) {
  const double least = c.real(key, 0.5);
  if (least < 0 || least > 1) c.issues().reject(fmt::format("{}: '{}' must lie between 0 and 1", c.where(), key));
  const int64_t count = c.integer("num_thresholds", 1, kMostThresholds, 200);
  Thresholds t;
  if (c.value("class_id") != nullptr) t.class_id = c.integer("class_id", 0, int64_t{1} << 31, 0);
  t.even = count > 1;
  t.values = t.even ? even_thresholds(count) : std::vector<double>{0.5};
  // Keras compares in float32.
  return threshold_metric(t, [=, bound = static_cast<float>(least)](const Counts& n) {
    double best = 0;
    for (size_t i = 0; i < n.tp.size(); ++i)
      if (static_cast<float>(bounded(n, i)) >= bound) best = std::max(best, wanted(n, i));
    return best;
  });
}

struct AreaOptions {
  std::string curve, method;
};

double interpolated_precision_recall(const Counts& n) {
  double area = 0;
  for (size_t i = 0; i + 1 < n.tp.size(); ++i) {
    const double dtp = n.tp[i] - n.tp[i + 1], p = n.tp[i] + n.fp[i], next = n.tp[i + 1] + n.fp[i + 1];
    const double slope = share(dtp, std::max(p - next, 0.0)), intercept = n.tp[i + 1] - slope * next;
    const double ratio = p > 0 && next > 0 ? p / next : 1;
    area += share(slope * (dtp + intercept * std::log(ratio)), std::max(n.tp[i + 1] + n.fn[i + 1], 0.0));
  }
  return area;
}

// The coordinates of one threshold on the curve.
std::pair<double, double> curve_point(const AreaOptions& o, const Counts& n, size_t i) {
  if (o.curve == "ROC") return {share(n.fp[i], n.fp[i] + n.tn[i]), recall_at(n, i)};
  if (o.curve == "PR") return {recall_at(n, i), precision_at(n, i)};
  const double scale = share(n.tp[i] + n.fn[i], n.tn[i] + n.fp[i]);
  if (n.tp[i] == 0) return {0, 1};
  return {std::max(1 - scale * share(n.fn[i], n.tp[i]), 0.0), 1 - scale * share(n.fp[i], n.tp[i])};
}

double area_under(const AreaOptions& o, const Counts& n) {
  if (o.curve == "PR" && o.method == "interpolation") return interpolated_precision_recall(n);
  double area = 0;
  for (size_t i = 0; i + 1 < n.tp.size(); ++i) {
    const auto [x, y] = curve_point(o, n, i);
    const auto [next_x, next_y] = curve_point(o, n, i + 1);
    const double height = o.method == "interpolation" ? (y + next_y) / 2
                          : o.method == "minoring"    ? std::min(y, next_y)
                                                      : std::max(y, next_y);
    area += (x - next_x) * height;
  }
  return area;
}

Thresholds read_area_thresholds(Config& c) {
  Thresholds t;
  const int64_t count = c.integer("num_thresholds", 2, kMostThresholds, 200);
  if (auto given = read_list(c)) {
    std::sort(given->begin(), given->end());
    t.values = std::move(*given);
    t.values.insert(t.values.begin(), 0);
    t.values.push_back(1);
    t.even = t.around = is_even(t.values);
    if (!t.even && t.values.size() > kMostUneven)
      c.issues().unknown(fmt::format("{}: more than {} uneven thresholds", c.where(), kMostUneven));
  } else {
    t.values = even_thresholds(count);
    t.even = t.around = true;
  }
  t.values.front() -= kEpsilon;
  t.values.back() += kEpsilon;
  return t;
}

MetricFormula auc(Config& c) {
  Thresholds t = read_area_thresholds(c);
  AreaOptions o{c.choice("curve", {"ROC", "PR", "PRGAIN", "roc", "pr", "prgain"}, "ROC"),
                lower_case(c.choice("summation_method",
                                    {"interpolation", "majoring", "minoring", "Interpolation", "Majoring", "Minoring"},
                                    "interpolation"))};
  for (char& letter : o.curve) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  t.logits = c.flag("from_logits", false);
  t.multi_label = c.flag("multi_label", false);
  c.ignore({"num_labels"});  // the shape says it
  c.only("label_weights");
  MetricFormula metric = threshold_metric(t, [o](const Counts& n) { return area_under(o, n); });
  if (!t.multi_label) return metric;
  metric.result = [t, o](std::span<const double> sums) {
    const auto size = static_cast<size_t>(t.buckets());
    const size_t labels = sums.size() / 2 / size;
    double total = 0;
    for (size_t i = 0; i < labels; ++i)
      total += area_under(o, counts_of(t, sums.subspan(i * size, size), sums.subspan((labels + i) * size, size)));
    return total / static_cast<double>(labels);
  };
  return metric;
}

double true_positives(const Counts& n, size_t i) {
  return n.tp[i];
}
double false_positives(const Counts& n, size_t i) {
  return n.fp[i];
}
double true_negatives(const Counts& n, size_t i) {
  return n.tn[i];
}
double false_negatives(const Counts& n, size_t i) {
  return n.fn[i];
}

}  // namespace

std::span<const MetricClass> threshold_metrics() {
  static constexpr MetricClass kMetrics[] = {
      {"TruePositives", "true_positives", "true_positives", count<true_positives>},
      {"FalsePositives", "false_positives", "false_positives", count<false_positives>},
      {"TrueNegatives", "true_negatives", "true_negatives", count<true_negatives>},
      {"FalseNegatives", "false_negatives", "false_negatives", count<false_negatives>},
      {"Precision", "precision", "precision", selected<precision_at>},
      {"Recall", "recall", "recall", selected<recall_at>},
      {"SensitivityAtSpecificity", "sensitivity_at_specificity", "sensitivity_at_specificity",
       [](Config& c) { return best_under(c, "specificity", specificity_at, recall_at); }},
      {"SpecificityAtSensitivity", "specificity_at_sensitivity", "specificity_at_sensitivity",
       [](Config& c) { return best_under(c, "sensitivity", recall_at, specificity_at); }},
      {"PrecisionAtRecall", "precision_at_recall", "precision_at_recall",
       [](Config& c) { return best_under(c, "recall", recall_at, precision_at); }},
      {"RecallAtPrecision", "recall_at_precision", "recall_at_precision",
       [](Config& c) { return best_under(c, "precision", precision_at, recall_at); }},
      {"AUC", "auc", "auc", auc},
  };
  return kMetrics;
}

}  // namespace plimsoll::engine
