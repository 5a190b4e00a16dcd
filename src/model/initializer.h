// First values for the weights of a model that comes without any. The distributions are Keras's; the numbers are our
// own, drawn from Philox by seed and weight name, so that no weight's values depend on which other weights there are.
#pragma once

#include <cstdint>
#include <span>

#include "model/model.h"

namespace plimsoll::engine {

// One kUnsupported error that lists every weight whose initializer we do not have.
Status check_initializers(const Model& model);

// Fills `values` (as many as the weight has elements). A seed inside the initializer's configuration is not used.
Status initialize(const Weight& weight, uint64_t seed, std::span<float> values);
Status initialize(const Weight& weight, uint64_t seed, std::span<double> values);

}  // namespace plimsoll::engine
