// Counts what the whole program, including its shared libraries, takes from malloc while a watch exists. Programs that
// use it link tests/support/malloc.cpp, which replaces malloc. Under AddressSanitizer, which has its own malloc,
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

  size_t largest() const;  // bytes of the largest allocation
  size_t bytes() const;    // bytes of all allocations
  int64_t count() const;
};

}  // namespace plimsoll::engine::testing
