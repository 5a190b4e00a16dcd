// A 128-bit digest of bytes: MurmurHash3 x64_128 (Austin Appleby, public domain). It detects damaged or changed
// contents at several gigabytes per second. It is not cryptographic: an attacker can make two contents with the same
// digest, so files checked with it must lie where only their owner can write.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace plimsoll::engine {

class Digest {
 public:
  void add(std::span<const std::byte> bytes);
  std::string text() const;  // the digest of all bytes added so far, as 32 hexadecimal digits

 private:
  void mix(const std::byte* block);
  uint64_t first_ = 0, second_ = 0, length_ = 0;
  std::array<std::byte, 16> rest_{};  // bytes that do not fill a block yet
  size_t rest_bytes_ = 0;
};

}  // namespace plimsoll::engine
