// Made-up data, for examples and measurements: the same numbers for the same seed on every machine.
#pragma once

#include <cstdint>
#include <vector>

#include "base/tensor.h"

namespace plimsoll::engine {

// Numbers in [low, high), row-major.
std::vector<float> random_uniform(const Shape& shape, uint64_t seed, float low = 0, float high = 1);

// Whole numbers in [0, limit); none where limit or count is not above 0.
std::vector<int32_t> random_integers(int32_t limit, int64_t count, uint64_t seed);

}  // namespace plimsoll::engine
