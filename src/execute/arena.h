// The one block of memory a plan lays out. Address space is taken at start; pages become resident as they are written.
#pragma once

#include <memory>

#include "base/bytes.h"

namespace plimsoll {

class Arena {
 public:
  static Result<Arena> reserve(Bytes bytes);
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&&) = delete;
  ~Arena();

  std::byte* at(Bytes offset) const { return base_ + offset; }
  Bytes bytes() const { return bytes_; }

 private:
  Arena(std::byte* base, Bytes bytes) : base_(base), bytes_(bytes) {}
  std::byte* base_;
  Bytes bytes_;
};

}  // namespace plimsoll
