#include "execute/arena.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace plimsoll {
namespace {

Bytes whole_pages(Bytes bytes) {
  return align_up(std::max<Bytes>(bytes, 1), sysconf(_SC_PAGESIZE));
}
size_t mapped(Bytes bytes) {
  return static_cast<size_t>(whole_pages(bytes + Arena::kGuard));
}

}  // namespace

Result<Arena> Arena::reserve(Bytes bytes) {
  void* base = mmap(nullptr, mapped(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED)
    return fail(Error{ErrorCode::kOutOfMemory,
                      fmt::format("the system gave no {} for the arena: {}", format_bytes(bytes), std::strerror(errno)),
                      {},
                      {"a smaller --budget, or a higher limit (ulimit -v)"}});
  // Fewer page faults in the first step. Only whole huge pages inside this range are used, so nothing beyond it gets
  // resident.
  madvise(base, static_cast<size_t>(whole_pages(bytes)), MADV_HUGEPAGE);
  return Arena(static_cast<std::byte*>(base), bytes);
}

Bytes Arena::resident_bytes() const {
  const Bytes page = sysconf(_SC_PAGESIZE), chunk = 4096;
  unsigned char present[chunk];
  Bytes sum = 0;
  for (Bytes first = 0; first < whole_pages(bytes_); first += chunk * page) {
    const Bytes span = std::min(chunk * page, whole_pages(bytes_) - first);
    if (mincore(base_ + first, static_cast<size_t>(span), present) != 0) return 0;
    for (Bytes i = 0; i < span / page; ++i) sum += (present[i] & 1) != 0 ? page : 0;
  }
  return sum;
}

Arena::Arena(Arena&& other) noexcept : base_(std::exchange(other.base_, nullptr)), bytes_(other.bytes_) {}

Arena::~Arena() {
  if (base_ != nullptr) munmap(base_, mapped(bytes_));
}

}  // namespace plimsoll
