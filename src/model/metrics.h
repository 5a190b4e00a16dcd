// The metrics that are not means of a loss: one row per class with its names and the function that reads it.
//
// The device adds numbers up, and the host turns the sums of an epoch into Keras's number.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/expression.h"

namespace plimsoll::engine {

struct MetricCall {
  Expression x, y;                    // prediction and target, both of T; labels are i32 [rows]
  std::optional<Expression> weights;  // [N], sample weights of a weighted metric
};

struct MetricFormula {
  bool larger_is_better = true;
  // Returns "" or why the metric cannot be computed for a sample of this shape. `labels`: the target is one integer per
  // row. A missing function accepts targets that look like the prediction.
  std::function<std::string(const Shape& sample, bool labels)> check;
  // A mean: one number per row, and a function of the mean (none: the mean itself).
  std::function<Expression(const MetricCall&)> rows;
  std::function<double(double)> of_mean;
  bool one_per_sample = false;  // `rows` repeats one number per sample, so it cannot skip masked rows
  // Or any number of sums over the batch, as a vector, and the function of their totals.
  std::function<Expression(const MetricCall&)> sums;
  std::function<double(std::span<const double>)> result;
  // Instead of `result`, if Keras reports a vector: the function of the totals that returns its elements.
  std::function<std::vector<double>(std::span<const double>)> elements;
};

struct MetricClass {
  std::string_view class_name, function;  // "AUC" and "auc": Keras takes both as strings
  std::string_view name;                  // its name in reports
  MetricFormula (*read)(Config&);
};
std::span<const MetricClass> mean_metrics();
std::span<const MetricClass> threshold_metrics();
std::span<const MetricClass> class_metrics();

const MetricClass* find_metric(std::string_view name);  // null: not supported, or a loss
std::vector<std::string> all_metric_names();

// Helpers for the formulas.
Expression flattened(const Expression& x);
// The weight of each element of x: the sample's weight, or 1.
Expression element_weights(const MetricCall& call, const Expression& x);
// Adds up values [n] with the same index. Indices are whole numbers from 0 to size - 1, as T.
Expression histogram(const Expression& values, const Expression& indices, int64_t size);
Expression joined(const std::vector<Expression>& vectors);
// Index of the largest element along the last axis, as T [rows].
Expression largest_index(const Expression& x);
std::string only_like_prediction(bool labels);  // "" or the reason

}  // namespace plimsoll::engine
