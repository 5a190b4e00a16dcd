// Where an arena lies. Kernels get addresses in it; the host looks in through read() and write(), which keep the order
// of the device's queue.
#pragma once

#include <cstddef>
#include <span>

#include "base/bytes.h"
#include "base/error.h"

namespace plimsoll::engine {

// A few bytes for one place: the scalars that change from step to step.
struct Poke {
  Bytes offset = 0;
  Bytes bytes = 0;  // at most 16
  std::byte data[16] = {};
};

class Memory {
 public:
  // Room behind the last byte that no plan uses. Tests fill it and look whether it stays.
  static constexpr Bytes kGuard = 4 * kKiB;

  virtual ~Memory() = default;

  virtual std::byte* at(Bytes offset) const = 0;  // the host may follow it only where host_visible()
  virtual bool host_visible() const = 0;
  virtual Bytes bytes() const = 0;
  virtual Bytes held_bytes() const = 0;  // what of it the keeper of this memory counts as taken

  // Memory that grows takes addresses at first and room only when it is asked to: [0, bytes) may be used afterwards,
  // and what was in it stays. kOutOfMemory where there is no room; then it is as it was. Other memory is all there
  // already.
  virtual Status commit(Bytes /*bytes*/) { return {}; }
  // Gives back what lies above `bytes`, once everything enqueued is done.
  virtual void trim(Bytes /*bytes*/) {}

  // Takes another size, with nothing enqueued. The first `keep` bytes keep what they hold; addresses may change.
  // kOutOfMemory where there is no room for it: then the memory is as it was.
  virtual Status resize(Bytes bytes, Bytes keep) = 0;

  // After whatever was enqueued before; on return the host may use its side again.
  virtual Status write(Bytes offset, const void* from, Bytes bytes) = 0;
  virtual Status read(Bytes offset, void* to, Bytes bytes) const = 0;
  virtual Status fill(Bytes offset, std::byte value, Bytes bytes) = 0;
  // Enqueued; allocates nothing.
  virtual void poke(std::span<const Poke> pokes) = 0;
};

}  // namespace plimsoll::engine
