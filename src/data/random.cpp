#include "data/random.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "base/philox.h"

namespace plimsoll::engine {
namespace {

constexpr uint32_t kUniformDomain = 0x756E6966, kIntegersDomain = 0x696E7473;

template <typename Use>
void draw_words(int64_t count, uint64_t seed, uint32_t domain, Use use) {
  for (int64_t i = 0; i < count; i += 4) {
    const auto block = static_cast<uint64_t>(i / 4);
    const auto words =
        Philox::draw(seed, {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, domain});
    for (int64_t k = 0; k < 4 && i + k < count; ++k) use(i + k, words[static_cast<size_t>(k)]);
  }
}

}  // namespace

std::vector<float> random_uniform(const Shape& shape, uint64_t seed, float low, float high) {
  assert(low < high);
  std::vector<float> numbers(static_cast<size_t>(shape.elements()));
  const float last = std::nextafter(high, low);  // used if the sum below would round up to `high`
  draw_words(shape.elements(), seed, kUniformDomain, [&](int64_t i, uint32_t word) {
    numbers[static_cast<size_t>(i)] = std::min(low + (high - low) * Philox::unit(word), last);
  });
  return numbers;
}

std::vector<int32_t> random_integers(int32_t limit, int64_t count, uint64_t seed) {
  if (limit <= 0 || count <= 0) return {};
  std::vector<int32_t> numbers(static_cast<size_t>(count));
  draw_words(count, seed, kIntegersDomain, [&](int64_t i, uint32_t word) {
    numbers[static_cast<size_t>(i)] = static_cast<int32_t>((uint64_t{word} * static_cast<uint64_t>(limit)) >> 32);
  });
  return numbers;
}

}  // namespace plimsoll::engine
