// How a loop over time runs on a card: sizes of blocks and chunks, and the parts of the workspace. The offer and the
// binder share it. All of it follows from shapes and the card's fields.
//
// A chunk is a number of steps whose products with the input are made at once. Within a chunk one cooperative kernel
// runs step after step: each of its blocks owns some units for some samples, keeps the units' columns of the recurrent
// kernel in shared memory, and exchanges states with the other blocks through the L2 cache.
#pragma once

#include <vector>

#include "backends/cuda/kernels.h"
#include "ops/recurrent.h"

namespace plimsoll::engine::cuda {

inline constexpr const char* kLoopKernel = "persistent";

inline constexpr int64_t kUnitTile = 8;       // units of one tensor-core tile
inline constexpr int64_t kRowTile = 64;       // samples whose sums a block makes at once with tensor cores
inline constexpr int64_t kSmallRowTile = 16;  // the same for few samples, or without tensor cores
inline constexpr int64_t kSplit = 4;          // blocks that share the sum of the backward product

struct LoopGeometry {
  Recurrent r;
  DType dtype = DType::kFloat32;
  bool matrix = false;      // tensor cores
  int64_t k_block = 0;      // terms of a sum in 16 bytes per lane
  int64_t padded = 0;       // units, rounded up to whole k blocks
  int64_t tiles = 0;        // of kUnitTile units
  int64_t block_tiles = 0;  // tiles of a block
  int64_t blocks = 0;       // along the units
  int64_t groups = 0;       // groups of samples, which run side by side without waiting for each other
  int64_t rows = 0;         // samples of a group, a multiple of 16
  int64_t chunk = 0;        // steps
  int64_t segment = 0;      // steps that are computed again at once; T without checkpoints
  int64_t split = 1;        // blocks that share the sums of the backward product
  bool forward_in_shared = false, backward_in_shared = false;  // whether the weights of a block are in shared memory

  int64_t row_tile() const { return matrix && rows > kSmallRowTile ? kRowTile : kSmallRowTile; }
  int64_t padded_rows() const { return groups * rows + kRowTile; }
  int64_t wide() const { return r.gates() * r.u; }
  // Gradients of sums that the backward pass makes per step: one per gate, and a GRU's for the part from the state.
  int64_t sums() const { return r.cell == CellKind::kSimple ? 1 : r.cell == CellKind::kGruResetBefore ? 3 : 4; }
  int64_t width() const { return sums() * padded; }
  int64_t copies() const { return r.h_masks > 1 ? r.gates() : 1; }
  bool again() const { return r.saves == CellSaves::kCheckpoints; }
  bool padded_units() const { return padded != r.u; }
  int64_t element() const { return size_of(dtype); }

  Bytes forward_shared() const;  // shared memory of a block
  Bytes backward_shared() const;
};

// Fails if the card or the sizes do not allow it.
Result<LoopGeometry> loop_geometry(const Card& card, const NodeView& node);

// Columns of a weight matrix that are multiplied by the same operand: `count` gates from `gate` on.
struct GateGroup {
  int64_t gate, count;
};
std::vector<GateGroup> input_groups(const LoopGeometry& g);
std::vector<GateGroup> state_groups(const LoopGeometry& g);

// Parts of the workspace. Offsets from its start; a part that does not exist has no bytes.
struct LoopScratch {
  Bytes packed = 0, packed_back = 0;  // the recurrent kernel in the order in which blocks read it
  Bytes state_h = 0, state_c = 0;     // float32 [N][U]
  Bytes grad_h = 0, grad_c = 0;       // the same, their gradients
  Bytes exchange = 0, reset = 0;      // states as operands; r * h, if the reset gate acts before the product
  Bytes first = 0;                    // i32 [N], the first step that is not masked
  Bytes counters = 0;                 // of barriers
  Bytes operand = 0;                  // [chunk][N][max(D, U)], inputs or states as operands
  Bytes products = 0;                 // float32 [chunk][N][gates * U], the products with the input
  Bytes sums = 0;                     // [chunk][N][width]: gradients of the gates' sums
  Bytes partial = 0;                  // float32 [split][rows][units]
  Bytes input_grad = 0;               // float32 [gates or 1][chunk][N][D]
  Bytes weight_grad = 0, state_weight_grad = 0, bias_grad = 0;  // float32
  Bytes states = 0, carries = 0, gates = 0;                     // of a segment that is computed again
  Bytes library = 0, library_bytes = 0;                         // for cuBLASLt
  Bytes counter_bytes = 0, exchange_bytes = 0, sums_bytes = 0;
  Bytes bytes = 0;
};
LoopScratch loop_scratch(const LoopGeometry& g, bool backward);

}  // namespace plimsoll::engine::cuda
