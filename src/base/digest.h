// A 128-bit digest of bytes: MurmurHash3 x64_128 (Austin Appleby, public domain). It tells damaged or changed contents
// from good ones at some gigabytes per second. It does not stand against somebody who makes two contents alike on
// purpose: what is checked by it must lie where only its owner can write.
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
  std::string text() const;  // of everything added so far: 32 hexadecimal digits

 private:
  void mix(const std::byte* block);
  uint64_t first_ = 0, second_ = 0, length_ = 0;
  std::array<std::byte, 16> rest_{};  // what does not fill a block yet
  size_t rest_bytes_ = 0;
};

}  // namespace plimsoll::engine
