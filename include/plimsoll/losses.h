/// @file
/// The losses and metrics of Keras. Training minimises the loss and reports the metrics.
#pragma once

#include <string>

#include "plimsoll/config_value.h"

#pragma GCC visibility push(default)
namespace plimsoll {

/// A loss function. It is made implicitly from a Keras name, "mse", or by a function in plimsoll::losses.
class Loss : public ConfigValue {
 public:
  /// The loss of this Keras name.
  Loss(const char* keras_name) : ConfigValue(keras_name) {}  // NOLINT(google-explicit-constructor)
  /// The loss of this Keras name.
  Loss(const std::string& keras_name) : ConfigValue(keras_name) {}  // NOLINT(google-explicit-constructor)

 private:
  friend struct engine::Access;
  using ConfigValue::ConfigValue;
};

/// A metric, by its Keras name: "accuracy", "mae", "binary_accuracy". Metrics that Plimsoll does not compute are
/// skipped.
class Metric : public ConfigValue {
 public:
  /// The metric of this Keras name.
  Metric(const char* keras_name) : ConfigValue(keras_name) {}  // NOLINT(google-explicit-constructor)
  /// The metric of this Keras name.
  Metric(const std::string& keras_name) : ConfigValue(keras_name) {}  // NOLINT(google-explicit-constructor)

 private:
  friend struct engine::Access;
  using ConfigValue::ConfigValue;
};

/// The losses of Keras, with Keras's arguments and defaults. A loss is the mean over the samples of a batch.
namespace losses {

/// Arguments of SparseCategoricalCrossentropy().
struct SparseCategoricalCrossentropyOptions {
  bool from_logits = false;  ///< Whether the model's output is logits, not probabilities.
};
/// Arguments of CategoricalCrossentropy() and BinaryCrossentropy().
struct CrossentropyOptions {
  bool from_logits = false;    ///< Whether the model's output is logits, not probabilities.
  double label_smoothing = 0;  ///< From 0 to 1: how far targets are moved towards the uniform distribution.
};

/// Cross-entropy with labels that are class numbers.
Loss SparseCategoricalCrossentropy(const SparseCategoricalCrossentropyOptions& options = {});
/// Cross-entropy with targets that are one-hot rows or probabilities.
Loss CategoricalCrossentropy(const CrossentropyOptions& options = {});
/// Cross-entropy of independent yes-or-no targets.
Loss BinaryCrossentropy(const CrossentropyOptions& options = {});
Loss MeanSquaredError();   ///< Mean of (target - prediction)².
Loss MeanAbsoluteError();  ///< Mean of |target - prediction|.

/// Any other loss class of Keras, with its configuration as JSON in the form that get_config() returns.
Loss Custom(const std::string& class_name, const std::string& config_json = "{}");

}  // namespace losses

/// Metrics that need arguments. Other metrics are given by their Keras names.
namespace metrics {

/// The share of predictions on the right side of `threshold`.
Metric BinaryAccuracy(double threshold = 0.5);

/// Any other metric class of Keras, with its configuration as JSON in the form that get_config() returns.
Metric Custom(const std::string& class_name, const std::string& config_json = "{}");

}  // namespace metrics
}  // namespace plimsoll
#pragma GCC visibility pop
