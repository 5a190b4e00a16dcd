/// @file
/// The initializers of Keras, which set the initial weights. A Keras name is an initializer too: `.kernel_initializer =
/// "he_normal"`.
#pragma once

#include <string>

#include "plimsoll/config_value.h"

#pragma GCC visibility push(default)
namespace plimsoll {

/// Sets the initial values of a weight. It is made implicitly from a Keras name, "he_normal", or by a function in
/// plimsoll::initializers.
class Initializer : public ConfigValue {
 public:
  /// The initializer of this Keras name.
  Initializer(const char* keras_name) : ConfigValue(keras_name) {}  // NOLINT(google-explicit-constructor)
  /// The initializer of this Keras name.
  Initializer(const std::string& keras_name) : ConfigValue(keras_name) {}  // NOLINT(google-explicit-constructor)

 private:
  friend struct engine::Access;
  using ConfigValue::ConfigValue;
};

/// The initializers of Keras, with Keras's arguments and defaults. Random ones draw from the seed of the run.
namespace initializers {

Initializer Zeros();                     ///< All zeros.
Initializer Ones();                      ///< All ones.
Initializer Constant(double value = 0);  ///< All `value`.
/// Uniform between `minval` and `maxval`.
Initializer RandomUniform(double minval = -0.05, double maxval = 0.05);
/// Normal with this mean and standard deviation.
Initializer RandomNormal(double mean = 0, double stddev = 0.05);
/// Normal. Values more than two standard deviations from the mean are drawn again.
Initializer TruncatedNormal(double mean = 0, double stddev = 0.05);
Initializer GlorotUniform();  ///< VarianceScaling(1, "fan_avg", "uniform"): the default of kernels.
Initializer GlorotNormal();   ///< VarianceScaling(1, "fan_avg", "truncated_normal").
Initializer HeUniform();      ///< VarianceScaling(2, "fan_in", "uniform").
Initializer HeNormal();       ///< VarianceScaling(2, "fan_in", "truncated_normal").
Initializer LecunUniform();   ///< VarianceScaling(1, "fan_in", "uniform").
Initializer LecunNormal();    ///< VarianceScaling(1, "fan_in", "truncated_normal").
/// Scaled by the number of inputs or outputs of the weight. `mode`: "fan_in", "fan_out" or "fan_avg"; `distribution`:
/// "truncated_normal", "untruncated_normal" or "uniform".
Initializer VarianceScaling(double scale = 1, const std::string& mode = "fan_in",
                            const std::string& distribution = "truncated_normal");
Initializer Orthogonal(double gain = 1);  ///< An orthogonal matrix times `gain`; for weights of two or more dimensions.
Initializer Identity(double gain = 1);    ///< The identity times `gain`; for weights of two dimensions.

/// Any other initializer class of Keras, with its configuration as JSON in the form that get_config() returns.
Initializer Custom(const std::string& class_name, const std::string& config_json = "{}");

}  // namespace initializers
}  // namespace plimsoll
#pragma GCC visibility pop
