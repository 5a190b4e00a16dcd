#include "base/digest.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace plimsoll::engine {
namespace {

constexpr uint64_t kC1 = 0x87c37b91114253d5, kC2 = 0x4cf5ad432745937f;

uint64_t final_mix(uint64_t k) {
  k ^= k >> 33;
  k *= 0xff51afd7ed558ccd;
  k ^= k >> 33;
  k *= 0xc4ceb9fe1a85ec53;
  return k ^ k >> 33;
}

uint64_t mixed_first(uint64_t k) {
  return std::rotl(k * kC1, 31) * kC2;
}

uint64_t mixed_second(uint64_t k) {
  return std::rotl(k * kC2, 33) * kC1;
}

}  // namespace

void Digest::mix(const std::byte* block) {
  uint64_t k[2];
  std::memcpy(k, block, sizeof(k));
  first_ = (std::rotl(first_ ^ mixed_first(k[0]), 27) + second_) * 5 + 0x52dce729;
  second_ = (std::rotl(second_ ^ mixed_second(k[1]), 31) + first_) * 5 + 0x38495ab5;
}

void Digest::add(std::span<const std::byte> bytes) {
  length_ += bytes.size();
  if (rest_bytes_ > 0) {
    const size_t taken = std::min(bytes.size(), rest_.size() - rest_bytes_);
    std::copy_n(bytes.data(), taken, rest_.data() + rest_bytes_);
    rest_bytes_ += taken;
    bytes = bytes.subspan(taken);
    if (rest_bytes_ < rest_.size()) return;
    mix(rest_.data());
    rest_bytes_ = 0;
  }
  for (; bytes.size() >= rest_.size(); bytes = bytes.subspan(rest_.size())) mix(bytes.data());
  std::copy(bytes.begin(), bytes.end(), rest_.begin());
  rest_bytes_ = bytes.size();
}

std::string Digest::text() const {
  std::array<std::byte, 16> tail{};
  std::copy_n(rest_.begin(), rest_bytes_, tail.begin());
  uint64_t k[2];
  std::memcpy(k, tail.data(), sizeof(k));
  uint64_t a = first_ ^ mixed_first(k[0]) ^ length_;  // zeros mix to zero, so unused bytes of k[0] do not matter
  uint64_t b = second_ ^ mixed_second(k[1]) ^ length_;
  a += b;
  b += a;
  a = final_mix(a);
  b = final_mix(b);
  a += b;
  b += a;
  return fmt::format("{:016x}{:016x}", a, b);
}

}  // namespace plimsoll::engine
