// Changes to a model that a plan can price without the changed model's file: another input size, fewer filters, smaller
// kernels, a layer less. They change Keras's description before the model is built, so the price is that of a real
// plan.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/description.h"

namespace plimsoll::engine {

struct WhatIf {
  // Of one sample, instead of the shape that the model's only input declares. Changes nothing if the model declares no
  // complete shape or this one.
  std::vector<int64_t> input_shape;
  double filters = 1;                       // factor for the filters and units of hidden layers
  int64_t largest_kernel = 0;               // larger kernels shrink to this size; 0: as they are
  std::vector<std::string> without_layers;  // "conv2d_1", "backbone/conv1"

  bool any() const { return !input_shape.empty() || filters != 1 || largest_kernel > 0 || !without_layers.empty(); }
};

// Returns the changed description. Fails with P201 if the model has no such layer, if the layer has several inputs, or
// if no layer would change.
Result<Description> change(Description description, const WhatIf& what_if);

// Returns the shape of the model's only input as the description declares it, without the batch; empty if there are
// several inputs or if a size is not declared.
std::vector<int64_t> declared_input(const Description& description);
// Returns the largest kernel size of any convolution; 0 without convolutions.
int64_t largest_kernel(const Description& description);

}  // namespace plimsoll::engine
