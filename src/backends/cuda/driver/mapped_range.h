// Device memory at fixed addresses that grows and shrinks, through the driver's virtual memory management. A range of
// addresses is reserved once; physical memory is mapped into it from the bottom up and released from the top down.
// Kernels and captured graphs keep their addresses whatever is mapped.
#pragma once

#include <bit>
#include <vector>

#include "backends/cuda/driver/context.h"

namespace plimsoll::engine::cuda {

class MappedRange {
 public:
  // Reserves addresses for `bytes`, without physical memory.
  static Result<std::unique_ptr<MappedRange>> reserve(const Context& context, Bytes bytes);
  ~MappedRange();
  MappedRange(const MappedRange&) = delete;
  MappedRange& operator=(const MappedRange&) = delete;

  std::byte* base() const { return std::bit_cast<std::byte*>(base_); }
  Bytes mapped() const { return mapped_; }

  // Makes [0, bytes) usable. Returns kOutOfMemory if the card has too little free memory; then nothing new stays
  // mapped.
  Status grow(Bytes bytes);
  // Releases every piece that begins at or above `bytes`. No work that uses them may be in flight.
  void shrink(Bytes bytes);

 private:
  // Each grow() ends a piece at the size it was asked for, rounded up. No piece is larger than this.
  static constexpr Bytes kLargestPiece = 64 * kMiB;
  struct Piece {
    unsigned long long handle = 0;
    Bytes bytes = 0;
  };

  MappedRange(const Context& context, unsigned long long base, Bytes bytes, Bytes granularity)
      : context_(context), base_(base), bytes_(bytes), granularity_(granularity) {}
  Status map_pieces(Bytes end);

  const Context& context_;
  unsigned long long base_;  // the driver's CUdeviceptr
  Bytes bytes_, granularity_;
  Bytes mapped_ = 0;
  std::vector<Piece> pieces_;  // in address order from base_, without gaps
};

}  // namespace plimsoll::engine::cuda
