// Device memory at fixed addresses that takes room piece by piece, through the driver's virtual memory: a range of
// addresses is reserved once, room is mapped into it from below and given back from above. Kernels and captured graphs
// keep their addresses whatever is mapped behind them.
#pragma once

#include <bit>
#include <vector>

#include "backends/cuda/driver/context.h"

namespace plimsoll::engine::cuda {

class MappedRange {
 public:
  // Addresses for `bytes`, with nothing behind them.
  static Result<std::unique_ptr<MappedRange>> reserve(const Context& context, Bytes bytes);
  ~MappedRange();
  MappedRange(const MappedRange&) = delete;
  MappedRange& operator=(const MappedRange&) = delete;

  std::byte* base() const { return std::bit_cast<std::byte*>(base_); }
  Bytes mapped() const { return mapped_; }

  // [0, bytes) can be used afterwards; kOutOfMemory where the card has no room, and then nothing is kept of the try.
  Status grow(Bytes bytes);
  // Gives back every piece that begins at `bytes` or above it. No work on them may be under way.
  void shrink(Bytes bytes);

 private:
  // Pieces end where grow() was asked to end, rounded up, and none is larger than this.
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
  std::vector<Piece> pieces_;  // from base_ upwards, without gaps
};

}  // namespace plimsoll::engine::cuda
