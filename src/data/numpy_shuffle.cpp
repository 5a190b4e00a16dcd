#include "data/numpy_shuffle.h"

#include <bit>
#include <numeric>
#include <random>
#include <utility>

namespace plimsoll::engine {

std::vector<uint32_t> numpy_shuffle(uint32_t count, uint32_t seed) {
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  std::mt19937 words(seed);
  for (uint32_t i = count; i-- > 1;) {
    // NumPy draws from the smallest power of two that includes i, until the number is at most i.
    const uint32_t mask = static_cast<uint32_t>(std::bit_ceil(uint64_t{i} + 1) - 1);
    uint32_t j = 0;
    do {
      j = static_cast<uint32_t>(words()) & mask;
    } while (j > i);
    std::swap(order[i], order[j]);
  }
  return order;
}

}  // namespace plimsoll::engine
