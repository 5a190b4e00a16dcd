// The order that numpy.random.RandomState(seed).shuffle() gives a list. Keras puts the files of a folder into it before
// it cuts off a part for validation.
#pragma once

#include <cstdint>
#include <vector>

namespace plimsoll::engine {

// Returns, for each place of the shuffled list, the place in the original one.
std::vector<uint32_t> numpy_shuffle(uint32_t count, uint32_t seed);

}  // namespace plimsoll::engine
