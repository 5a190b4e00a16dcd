// Estimates what stock Keras would hold at the peak of the same training step, from the same graph without any of our
// rewrites: every operation with its own buffers, in program order. bench/keras_estimate.md compares the estimate with
// measured steps.
#pragma once

#include "device/device.h"
#include "program/phases.h"

namespace plimsoll::engine {

struct KerasEstimate {
  Bytes step_bytes = 0;     // weights, optimizer state, gradients, activations and temporaries of a step
  Bytes library_bytes = 0;  // TensorFlow's own memory before the first step
  Bytes peak_bytes() const { return step_bytes + library_bytes; }
};

// Fails if the graph of the batch cannot be built, for example because its sizes overflow.
Result<KerasEstimate> estimate_keras(const Model& model, int64_t batch, const GraphOptions& options,
                                     const DeviceInfo& device);

}  // namespace plimsoll::engine
