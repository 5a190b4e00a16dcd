// Words of any size, for kernels that move elements without looking at them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

namespace plimsoll::engine::cuda {

// Calls f.operator()<Word>() with an integer type of `bytes` bytes.
template <typename F>
void with_bytes(int bytes, F f) {
  if (bytes == 1) f.template operator()<uint8_t>();
  if (bytes == 2) f.template operator()<uint16_t>();
  if (bytes == 4) f.template operator()<uint32_t>();
  if (bytes == 8) f.template operator()<uint2>();
  if (bytes == 16) f.template operator()<uint4>();
}

// A word full of one element, whose bits are the lowest of `pattern`.
template <typename Word>
Word repeated_word(uint64_t pattern, int element_bytes) {
  unsigned char bytes[sizeof(Word)];
  for (size_t i = 0; i < sizeof(Word); ++i)
    bytes[i] = static_cast<unsigned char>(pattern >> (8 * (i % static_cast<size_t>(element_bytes))));
  Word word;
  memcpy(&word, bytes, sizeof(Word));
  return word;
}

}  // namespace plimsoll::engine::cuda
