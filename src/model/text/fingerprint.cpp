// FarmHash: https://github.com/google/farmhash (farmhashna). SipHash: Aumasson and Bernstein, "SipHash: a fast
// short-input PRF", 2012.
#include "model/text/fingerprint.h"

#include <bit>
#include <cstring>
#include <utility>

namespace plimsoll::engine {
namespace {

constexpr uint64_t kPrime0 = 0xc3a5c85c97cb3127, kPrime1 = 0xb492b66fbe98f273, kPrime2 = 0x9ae16a3b2f90404f;

uint64_t word(const char* at) {
  uint64_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

uint64_t half_word(const char* at) {
  uint32_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

uint64_t shift_mix(uint64_t value) {
  return value ^ (value >> 47);
}

uint64_t mixed(uint64_t a, uint64_t b, uint64_t factor) {
  const uint64_t first = shift_mix((a ^ b) * factor);
  return shift_mix((b ^ first) * factor) * factor;
}

uint64_t up_to_16(const char* s, uint64_t n) {
  const uint64_t factor = kPrime2 + n * 2;
  if (n >= 8) {
    const uint64_t a = word(s) + kPrime2, b = word(s + n - 8);
    return mixed(std::rotr(b, 37) * factor + a, (std::rotr(a, 25) + b) * factor, factor);
  }
  if (n >= 4) return mixed(n + (half_word(s) << 3), half_word(s + n - 4), factor);
  if (n == 0) return kPrime2;
  const auto byte = [&](uint64_t i) { return static_cast<uint64_t>(static_cast<unsigned char>(s[i])); };
  const uint64_t first = byte(0) + (byte(n >> 1) << 8), last = n + (byte(n - 1) << 2);
  return shift_mix(first * kPrime2 ^ last * kPrime0) * kPrime2;
}

uint64_t up_to_32(const char* s, uint64_t n) {
  const uint64_t factor = kPrime2 + n * 2;
  const uint64_t a = word(s) * kPrime1, b = word(s + 8), c = word(s + n - 8) * factor, d = word(s + n - 16) * kPrime2;
  return mixed(std::rotr(a + b, 43) + std::rotr(c, 30) + d, a + std::rotr(b + kPrime2, 18) + c, factor);
}

uint64_t up_to_64(const char* s, uint64_t n) {
  const uint64_t factor = kPrime2 + n * 2;
  const uint64_t a = word(s) * kPrime2, b = word(s + 8), c = word(s + n - 8) * factor, d = word(s + n - 16) * kPrime2;
  const uint64_t y = std::rotr(a + b, 43) + std::rotr(c, 30) + d;
  const uint64_t z = mixed(y, a + std::rotr(b + kPrime2, 18) + c, factor);
  const uint64_t e = word(s + 16) * factor, f = word(s + 24);
  const uint64_t g = (y + word(s + n - 32)) * factor, h = (z + word(s + n - 24)) * factor;
  return mixed(std::rotr(e + f, 43) + std::rotr(g, 30) + h, e + std::rotr(f + a, 18) + g, factor);
}

// Two sums over 32 bytes.
struct Pair {
  uint64_t first = 0, second = 0;
};
Pair over_32(const char* s, uint64_t a, uint64_t b) {
  a += word(s);
  b = std::rotr(b + a + word(s + 24), 21);
  const uint64_t before = a;
  a += word(s + 8) + word(s + 16);
  b += std::rotr(a, 44);
  return {a + word(s + 24), b + before};
}

}  // namespace

uint64_t fingerprint64(std::string_view text) {
  const char* s = text.data();
  const uint64_t n = text.size();
  if (n <= 16) return up_to_16(s, n);
  if (n <= 32) return up_to_32(s, n);
  if (n <= 64) return up_to_64(s, n);
  constexpr uint64_t kSeed = 81;
  uint64_t x = kSeed * kPrime2 + word(s), y = kSeed * kPrime1 + 113, z = shift_mix(y * kPrime2 + 113) * kPrime2;
  Pair v, w;
  const char* const end = s + (n - 1) / 64 * 64;
  const char* const last = s + n - 64;
  for (; s != end; s += 64) {
    x = std::rotr(x + y + v.first + word(s + 8), 37) * kPrime1;
    y = std::rotr(y + v.second + word(s + 48), 42) * kPrime1;
    x ^= w.second;
    y += v.first + word(s + 40);
    z = std::rotr(z + w.first, 33) * kPrime1;
    v = over_32(s, v.second * kPrime1, x + w.first);
    w = over_32(s + 32, z + w.second, y + word(s + 16));
    std::swap(z, x);
  }
  const uint64_t factor = kPrime1 + ((z & 0xff) << 1);
  s = last;
  w.first += (n - 1) & 63;
  v.first += w.first;
  w.first += v.first;
  x = std::rotr(x + y + v.first + word(s + 8), 37) * factor;
  y = std::rotr(y + v.second + word(s + 48), 42) * factor;
  x ^= w.second * 9;
  y += v.first * 9 + word(s + 40);
  z = std::rotr(z + w.first, 33) * factor;
  v = over_32(s, v.second * factor, x + w.first);
  w = over_32(s + 32, z + w.second, y + word(s + 16));
  std::swap(z, x);
  return mixed(mixed(v.first, w.first, factor) + shift_mix(y) * kPrime0 + z, mixed(v.second, w.second, factor) + x,
               factor);
}

uint64_t siphash(std::string_view text, const std::array<uint64_t, 2>& key) {
  uint64_t a = key[0] ^ 0x736f6d6570736575, b = key[1] ^ 0x646f72616e646f6d, c = key[0] ^ 0x6c7967656e657261,
           d = key[1] ^ 0x7465646279746573;
  const auto rounds = [&](int count) {
    for (; count > 0; --count) {
      a += b;
      c += d;
      b = std::rotl(b, 13) ^ a;
      d = std::rotl(d, 16) ^ c;
      a = std::rotl(a, 32);
      c += b;
      a += d;
      b = std::rotl(b, 17) ^ c;
      d = std::rotl(d, 21) ^ a;
      c = std::rotl(c, 32);
    }
  };
  const auto add = [&](uint64_t value) {
    d ^= value;
    rounds(2);
    a ^= value;
  };
  size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) add(word(text.data() + at));
  uint64_t last = static_cast<uint64_t>(text.size()) << 56;
  for (size_t i = at; i < text.size(); ++i)
    last |= static_cast<uint64_t>(static_cast<unsigned char>(text[i])) << (8 * (i - at));
  add(last);
  c ^= 0xff;
  rounds(4);
  return a ^ b ^ c ^ d;
}

}  // namespace plimsoll::engine
