// The functions of keras.activations, shared by Activation(...), by `activation=` of other layers, and by layers such
// as ReLU. An Activation (layer.h) keeps its input's shape.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "model/layer.h"

namespace plimsoll::engine {

// Returns the function with Keras's default arguments; none if Keras has no such function, or one without defaults.
std::optional<Activation> named_activation(std::string_view name);

Activation relu_activation(std::optional<double> max_value, double negative_slope, double threshold);
Activation elu_activation(double alpha);

// Applies a function of the last axis along other axes, which may be several; negative ones count from the end. All
// must be dimensions of x.
ValueId along_axes(const BuildCall& call, ValueId x, std::span<const int64_t> axes, const Activation& of_last_axis);

}  // namespace plimsoll::engine
