// A malloc with a counter. It has its own file, because the compiler optimises calls of a malloc whose body it sees.
#include "tests/support/allocations.h"

#include <atomic>
#include <cerrno>

namespace {
std::atomic<bool> watching{false};
std::atomic<size_t> most{0};
std::atomic<size_t> sum{0};
std::atomic<int64_t> calls{0};

[[maybe_unused]] void note(size_t bytes) {
  if (!watching.load(std::memory_order_relaxed)) return;
  ++calls;
  sum += bytes;
  size_t seen = most.load();
  while (bytes > seen && !most.compare_exchange_weak(seen, bytes)) {
  }
}
}  // namespace

#ifndef __SANITIZE_ADDRESS__
// glibc's own entry points. Calls from shared libraries arrive here too.
extern "C" {
void* __libc_malloc(size_t);            // NOLINT
void* __libc_calloc(size_t, size_t);    // NOLINT
void* __libc_realloc(void*, size_t);    // NOLINT
void* __libc_memalign(size_t, size_t);  // NOLINT
void* malloc(size_t bytes) {
  note(bytes);
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t size) {
  note(count * size);
  return __libc_calloc(count, size);
}
void* realloc(void* memory, size_t bytes) {
  note(bytes);
  return __libc_realloc(memory, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  note(bytes);
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** to, size_t alignment, size_t bytes) {
  note(bytes);
  *to = __libc_memalign(alignment, bytes);
  return *to == nullptr ? ENOMEM : 0;
}
}
#endif

namespace plimsoll::engine::testing {

AllocationWatch::AllocationWatch() {
  most = 0;
  sum = 0;
  calls = 0;
  watching = true;
}
AllocationWatch::~AllocationWatch() {
  watching = false;
}
size_t AllocationWatch::largest() const {
  return most;
}
size_t AllocationWatch::bytes() const {
  return sum;
}
int64_t AllocationWatch::count() const {
  return calls;
}

}  // namespace plimsoll::engine::testing
