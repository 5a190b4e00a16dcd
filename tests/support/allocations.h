// Counts what the whole program, its shared libraries included, takes from malloc while a watch exists. One program
// links tests/execute/malloc_test.cpp, which replaces malloc.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plimsoll::testing {

class AllocationWatch {
 public:
  AllocationWatch();
  ~AllocationWatch();
  AllocationWatch(const AllocationWatch&) = delete;
  AllocationWatch& operator=(const AllocationWatch&) = delete;

  size_t largest() const;  // bytes of the largest single one
  int64_t count() const;
};

}  // namespace plimsoll::testing
