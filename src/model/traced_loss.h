// A loss that is written in Python: a Functional model of operations on the target and the prediction.
#pragma once

#include <optional>

#include "model/expression.h"
#include "model/layer.h"
#include "model/losses.h"

namespace plimsoll::engine {

struct TracedLoss {
  Layer layer;            // inputs: the target and the prediction; output: the loss of each row
  Shape target;           // of one sample
  bool integers = false;  // the function reads the target as integers
  bool labels = false;    // the target is one integer per row, which metrics also read
};

// Reads the configuration {"model", "target", "labels"}. Lists what is not supported.
std::optional<Loss> read_traced_loss(Config& config);
// The shape of a sample's losses; nullopt if it cannot be computed for this prediction.
std::optional<Shape> traced_rows(const Loss& loss, const Shape& sample);
Expression traced_loss_rows(const Loss& loss, const Expression& prediction, const Expression& target);

}  // namespace plimsoll::engine
