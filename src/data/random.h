// Synthetic data for examples and measurements. The same seed gives the same numbers on every machine.
#pragma once

#include <cstdint>
#include <vector>

#include "base/tensor.h"

namespace plimsoll::engine {

// Returns numbers in [low, high), row-major.
std::vector<float> random_uniform(const Shape& shape, uint64_t seed, float low = 0, float high = 1);

// Returns integers in [0, limit); none if limit or count is 0 or less.
std::vector<int32_t> random_integers(int32_t limit, int64_t count, uint64_t seed);

}  // namespace plimsoll::engine
