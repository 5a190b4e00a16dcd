// Counts every operator new of the test program. It is in a separate file because a compiler that sees only one of
// operator new and delete warns about free().
#include "tests/data/allocations.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

namespace {
std::atomic<int64_t> allocations{0};
}

[[gnu::noinline]] void* operator new(size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace plimsoll::engine {

int64_t allocations_so_far() {
  return allocations;
}

TEST(Allocations, AreCounted) {
  const int64_t before = allocations_so_far();
  std::vector<int> numbers(1000);
  numbers[7] = 1;
  EXPECT_EQ(allocations_so_far(), before + 1);
}

}  // namespace plimsoll::engine
