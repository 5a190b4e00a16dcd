// The one block of memory a plan lays out. Address space is taken at start; pages become resident as they are written.
#pragma once

#include <memory>

#include "base/bytes.h"

namespace plimsoll {

class Arena {
 public:
  // Address space behind the last byte. Nobody writes there, so it is never resident; tests fill it and look whether it
  // stays.
  static constexpr Bytes kGuard = 4 * kKiB;

  static Result<Arena> reserve(Bytes bytes);
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&&) = delete;
  ~Arena();

  std::byte* at(Bytes offset) const { return base_ + offset; }
  Bytes bytes() const { return bytes_; }
  Bytes resident_bytes() const;  // what of it the kernel has given pages to

 private:
  Arena(std::byte* base, Bytes bytes) : base_(base), bytes_(bytes) {}
  std::byte* base_;
  Bytes bytes_;
};

}  // namespace plimsoll
