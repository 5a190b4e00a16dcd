// Bytes per layer of the user's model.
#pragma once

#include "plan/plan.h"

namespace plimsoll::engine {

struct LayerBytes {
  LayerInfo info;
  Bytes weight_bytes = 0;
  Bytes activation_bytes = 0;  // outputs of the layer's forward pass
  Bytes workspace_bytes = 0;   // the largest workspace of any of its nodes
};

std::vector<LayerBytes> layer_bytes(const Model& model, const Plan& plan);

// A value that is live at the peak of the plan. The list is sorted by bytes, largest first.
struct PeakValue {
  const Value* value;
  Bytes bytes;
};
std::vector<PeakValue> peak_values(const Plan& plan);

// The values of a layer in one category at the peak, together; largest first. A value of no layer counts by its name.
struct PeakLayer {
  std::string layer;
  Category category;
  Bytes bytes;
};
std::vector<PeakLayer> peak_layers(const Plan& plan);

}  // namespace plimsoll::engine
