/// @file
/// Penalties on weights that are added to the loss: the regularizers of Keras.
#pragma once

#include <string>

#include "plimsoll/config_value.h"

#pragma GCC visibility push(default)
namespace plimsoll {

/// A penalty on a weight; none by default. It is made implicitly from a Keras name, "l2", or by a function in
/// plimsoll::regularizers.
class Regularizer : public ConfigValue {
 public:
  Regularizer();  ///< No penalty.
  /// The regularizer of this Keras name.
  Regularizer(const char* keras_name) : ConfigValue(keras_name) {}  // NOLINT(google-explicit-constructor)
  /// The regularizer of this Keras name.
  Regularizer(const std::string& keras_name) : ConfigValue(keras_name) {}  // NOLINT(google-explicit-constructor)

 private:
  friend struct engine::Access;
  using ConfigValue::ConfigValue;
};

/// The regularizers of Keras, with Keras's defaults. Factors must not be negative.
namespace regularizers {

Regularizer L1(double l1 = 0.01);                ///< l1 * sum of |w|.
Regularizer L2(double l2 = 0.01);                ///< l2 * sum of w².
Regularizer L1L2(double l1 = 0, double l2 = 0);  ///< The sum of L1 and L2.

}  // namespace regularizers
}  // namespace plimsoll
#pragma GCC visibility pop
