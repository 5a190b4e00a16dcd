// Initial values for the weights of a model that has none. The distributions are Keras's. The numbers are drawn from
// Philox by seed and weight name, so a weight's values do not depend on which other weights there are.
#pragma once

#include <cstdint>
#include <span>

#include "model/model.h"

namespace plimsoll::engine {

// Fails with one kUnsupported error that lists every weight with an unsupported initializer.
Status check_initializers(const Model& model);

// Fills `values`, which must have as many elements as the weight. A seed in the initializer's configuration is ignored.
Status initialize(const Weight& weight, uint64_t seed, std::span<float> values);
Status initialize(const Weight& weight, uint64_t seed, std::span<double> values);

}  // namespace plimsoll::engine
