#include "execute/arena.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace plimsoll {
namespace {

Bytes whole_pages(Bytes bytes) { return align_up(std::max<Bytes>(bytes, 1), sysconf(_SC_PAGESIZE)); }

}  // namespace

Result<Arena> Arena::reserve(Bytes bytes) {
  void* base = mmap(nullptr, static_cast<size_t>(whole_pages(bytes)), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED)
    return fail(Error{ErrorCode::kOutOfMemory, fmt::format("the system gave no {} for the arena: {}", format_bytes(bytes), std::strerror(errno)),
                      {}, {"a smaller --budget, or a higher limit (ulimit -v)"}});
  // Fewer page faults in the first step. Only whole huge pages inside the mapping are used, so nothing beyond it gets resident.
  madvise(base, static_cast<size_t>(whole_pages(bytes)), MADV_HUGEPAGE);
  return Arena(static_cast<std::byte*>(base), bytes);
}

Arena::Arena(Arena&& other) noexcept : base_(std::exchange(other.base_, nullptr)), bytes_(other.bytes_) {}

Arena::~Arena() {
  if (base_ != nullptr) munmap(base_, static_cast<size_t>(whole_pages(bytes_)));
}

}  // namespace plimsoll
