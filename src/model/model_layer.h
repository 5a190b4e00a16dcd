// A nested model as one layer, for layers that call another layer: TimeDistributed(Sequential([...])).
#pragma once

#include <optional>
#include <string>

#include "model/layer.h"

namespace plimsoll::engine {

// A layer that is called once per step, or once per layer of a model, takes this many numbers of calls further each
// time: random ops tell 2^24 calls apart, and steps and layers are at most 1,024 together.
inline constexpr int64_t kCallsApart = 1 << 14;

struct ModelLayer {
  Layer layer;
  int64_t calls = 1;  // of its layers, for the numbers of their random calls
};

// Reads a serialised Sequential or Functional model with so many inputs and one output. `policy` is that of the layer
// that calls it. Features that are not supported here are listed, and nothing is returned.
std::optional<ModelLayer> read_model_layer(const Json& object, const Precision& policy, const std::string& where,
                                           Issues& issues, size_t inputs = 1);

}  // namespace plimsoll::engine
