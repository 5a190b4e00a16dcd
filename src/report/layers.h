// Bytes by the user's layers.
#pragma once

#include "plan/plan.h"

namespace plimsoll::engine {

struct LayerBytes {
  LayerInfo info;
  Bytes weight_bytes = 0;
  Bytes activation_bytes = 0;  // what the forward pass of this layer writes
  Bytes workspace_bytes = 0;   // the largest any of its nodes is granted
};

std::vector<LayerBytes> layer_bytes(const Model& model, const Plan& plan);

// What is alive where the plan's peak is, the largest first.
struct PeakValue {
  const Value* value;
  Bytes bytes;
};
std::vector<PeakValue> peak_values(const Plan& plan);

}  // namespace plimsoll::engine
