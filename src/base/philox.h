// Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) maps a counter to four uniform
// words and has no state. The same counter always gives the same numbers, so they can be drawn again in any order.
#pragma once

#include <array>
#include <cstdint>

namespace plimsoll::engine {

struct Philox {
  using Words = std::array<uint32_t, 4>;

  static Words draw(uint64_t key, Words counter) {
    auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t{0xD2511F53} * counter[0];
      const uint64_t p1 = uint64_t{0xCD9E8D57} * counter[2];
      counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ k0, static_cast<uint32_t>(p1),
                 static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ k1, static_cast<uint32_t>(p0)};
      k0 += 0x9E3779B9;
      k1 += 0xBB67AE85;
    }
    return counter;
  }

  // Returns the upper 24 bits as a float in [0, 1), which has the same value in float32 and float64.
  static float unit(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }
};

}  // namespace plimsoll::engine
