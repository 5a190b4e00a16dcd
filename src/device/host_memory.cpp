#include "device/host_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace plimsoll::engine {
namespace {

Bytes whole_pages(Bytes bytes) {
  return align_up(std::max<Bytes>(bytes, 1), sysconf(_SC_PAGESIZE));
}
size_t mapped(Bytes bytes) {
  return static_cast<size_t>(whole_pages(bytes + Memory::kGuard));
}

}  // namespace

Result<std::byte*> HostMemory::map(Bytes bytes) {
  void* base = mmap(nullptr, mapped(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED)
    return fail(Error{ErrorCode::kOutOfMemory,
                      fmt::format("cannot allocate {} for the arena: {}", format_bytes(bytes), std::strerror(errno)),
                      {},
                      {"a smaller --budget, or a higher limit (ulimit -v)"}});
  // Huge pages cause fewer page faults in the first step. Only whole huge pages inside this range are used, so no
  // memory beyond it becomes resident.
  madvise(base, static_cast<size_t>(whole_pages(bytes)), MADV_HUGEPAGE);
  return static_cast<std::byte*>(base);
}

Result<std::unique_ptr<Memory>> HostMemory::reserve(Bytes bytes) {
  PLIMSOLL_ASSIGN(std::byte* const base, map(bytes));
  return std::unique_ptr<Memory>(new HostMemory(base, bytes));
}

Bytes HostMemory::held_bytes() const {
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

// Copies the kept bytes in pieces and releases the pages of each piece after the copy, so that little is held twice.
// (mremap would move the pages themselves, but not across the parts into which madvise splits a mapping.)
Status HostMemory::resize(Bytes bytes, Bytes keep) {
  constexpr Bytes kPiece = 4 * kMiB;
  PLIMSOLL_ASSIGN(std::byte* const moved, map(bytes));
  madvise(base_ + whole_pages(keep), mapped(bytes_) - static_cast<size_t>(whole_pages(keep)), MADV_DONTNEED);
  for (Bytes from = 0; from < keep; from += kPiece) {
    const auto size = static_cast<size_t>(std::min(kPiece, keep - from));
    std::memcpy(moved + from, base_ + from, size);
    madvise(base_ + from, size, MADV_DONTNEED);
  }
  munmap(base_, mapped(bytes_));
  base_ = moved;
  bytes_ = bytes;
  return {};
}

Status HostMemory::write(Bytes offset, const void* from, Bytes bytes) {
  std::memcpy(at(offset), from, static_cast<size_t>(bytes));
  return {};
}

Status HostMemory::read(Bytes offset, void* to, Bytes bytes) const {
  std::memcpy(to, at(offset), static_cast<size_t>(bytes));
  return {};
}

Status HostMemory::fill(Bytes offset, std::byte value, Bytes bytes) {
  std::memset(at(offset), static_cast<int>(value), static_cast<size_t>(bytes));
  return {};
}

void HostMemory::poke(std::span<const Poke> pokes) {
  for (const Poke& poke : pokes) std::memcpy(at(poke.offset), poke.data, static_cast<size_t>(poke.bytes));
}

HostMemory::~HostMemory() {
  munmap(base_, mapped(bytes_));
}

}  // namespace plimsoll::engine
