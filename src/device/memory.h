// The memory of an arena. Kernels get addresses in it. The host accesses it through read() and write(), which take
// effect in the order of the device's queue.
#pragma once

#include <cstddef>
#include <span>

#include "base/bytes.h"
#include "base/error.h"

namespace plimsoll::engine {

// A write of a few bytes to one offset, for scalars that change from step to step.
struct Poke {
  Bytes offset = 0;
  Bytes bytes = 0;  // at most 16
  std::byte data[16] = {};
};

class Memory {
 public:
  // Bytes after the end that no plan uses. Tests fill them and check that they do not change.
  static constexpr Bytes kGuard = 4 * kKiB;

  virtual ~Memory() = default;

  virtual std::byte* at(Bytes offset) const = 0;  // the host may dereference it only if host_visible()
  virtual bool host_visible() const = 0;
  virtual Bytes bytes() const = 0;
  virtual Bytes held_bytes() const = 0;  // bytes of it that the operating system or driver counts as taken

  // For memory that grows: it reserves addresses first and takes memory only here. Afterwards [0, bytes) may be used,
  // with its contents unchanged. Fails with kOutOfMemory, and changes nothing, if there is no room. Other memory is
  // committed from the start.
  virtual Status commit(Bytes /*bytes*/) { return {}; }
  // Releases the memory above `bytes`, after all enqueued work is done.
  virtual void trim(Bytes /*bytes*/) {}

  // Changes the size. No work may be enqueued. The first `keep` bytes keep their contents; addresses may change. Fails
  // with kOutOfMemory, and changes nothing, if there is no room.
  virtual Status resize(Bytes bytes, Bytes keep) = 0;

  // These run after all work enqueued before. When they return, the host may reuse its own buffer.
  virtual Status write(Bytes offset, const void* from, Bytes bytes) = 0;
  virtual Status read(Bytes offset, void* to, Bytes bytes) const = 0;
  virtual Status fill(Bytes offset, std::byte value, Bytes bytes) = 0;
  // Enqueues the writes. Does not allocate.
  virtual void poke(std::span<const Poke> pokes) = 0;
};

}  // namespace plimsoll::engine
