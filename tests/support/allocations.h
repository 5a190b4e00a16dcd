// Counts what the whole program, its shared libraries included, takes from malloc while a watch exists. Programs that
// use it link tests/support/malloc.cpp, which replaces malloc; under AddressSanitizer, which has a malloc of its own,
// nothing is counted.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plimsoll::engine::testing {

class AllocationWatch {
 public:
  AllocationWatch();
  ~AllocationWatch();
  AllocationWatch(const AllocationWatch&) = delete;
  AllocationWatch& operator=(const AllocationWatch&) = delete;

  size_t largest() const;  // bytes of the largest single one
  size_t bytes() const;    // of all together
  int64_t count() const;
};

}  // namespace plimsoll::engine::testing
