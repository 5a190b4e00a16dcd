// recurrent and recurrent_grad: own kernels for the loop, cuBLASLt for the products of all steps of a chunk.
#include <algorithm>

#include "backends/cuda/kernel_limits.h"
#include "backends/cuda/own_kernel.h"
#include "backends/cuda/recurrent/geometry.h"
#include "backends/cuda/workspace.h"
#include "ops/op.h"

namespace plimsoll::engine::cuda {
namespace {

constexpr int64_t kRowsOfChunk = 2048;  // enough for products at full speed, few enough to stay in the L2 cache
constexpr Bytes kMostScratch = 16 * kMiB;
constexpr int kWarpsOfBlock = 8;

// What a block may use, less a reserve for the driver and static variables.
Bytes shared_memory(const Card& card) {
  const int c = card.capability;
  const Bytes all = c < 80 ? 64 : c == 80 || c == 87 ? 163 : c < 90 || c >= 120 ? 99 : 227;
  return (all - 2) * kKiB;
}

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Partial sums of the warps, for `columns` columns of 8.
Bytes sums_in_shared(const LoopGeometry& g, int64_t columns) {
  const int64_t warps = g.row_tile() == kRowTile ? kWarpsOfBlock / 2 : kWarpsOfBlock;
  return warps * g.row_tile() * (columns * kUnitTile + (columns % 2 == 0 ? kUnitTile : 0)) * 4;
}

Bytes weights_of_block(const LoopGeometry& g) {
  return g.block_tiles * kUnitTile * g.padded * g.r.gates() * g.element();
}

void place_weights(const Card& card, LoopGeometry& g) {
  const Bytes limit = shared_memory(card);
  g.forward_in_shared = weights_of_block(g) + sums_in_shared(g, g.r.gates()) <= limit;
  g.backward_in_shared = weights_of_block(g) + sums_in_shared(g, g.split) <= limit;
}

}  // namespace

Bytes LoopGeometry::forward_shared() const {
  return sums_in_shared(*this, r.gates()) + (forward_in_shared ? weights_of_block(*this) : 0);
}

Bytes LoopGeometry::backward_shared() const {
  // With a split, a block has a share of the k blocks of several tiles, which is rounded up.
  const Bytes rounding = split > 1 ? split * kUnitTile * k_block * element() : 0;
  return sums_in_shared(*this, split) + (backward_in_shared ? weights_of_block(*this) + rounding : 0);
}

Result<LoopGeometry> loop_geometry(const Card& card, const NodeView& node) {
  constexpr int64_t kMostRows = int64_t{1} << 30;
  LoopGeometry g;
  g.r = read_recurrent(node.attrs(), node.in_shape(0), node.in_shape(2));
  g.dtype = node.in_dtype(0);
  const Recurrent& r = g.r;
  if (!is_compute_dtype(g.dtype))
    return refuse(node, "loops over time compute in f32, f16 and bf16, not " + std::string(name_of(g.dtype)));
  if (g.dtype == DType::kBFloat16 && !card.has_bfloat16()) return refuse(node, card.name + " has no bfloat16");
  if (r.n * r.t > kMostRows || r.u > kMostRows / 64 || r.d > kMostRows)
    return refuse(node, "the loop has more than 2^30 steps over all samples, or too many units");
  g.matrix = card.capability >= 80 && (is_half(g.dtype) || card.has_tf32());
  g.k_block = 64 / g.element();
  g.padded = align_up(r.u, g.k_block);
  g.tiles = ceil_div(r.u, kUnitTile);
  g.block_tiles = ceil_div(g.tiles, card.multiprocessors);
  g.blocks = ceil_div(g.tiles, g.block_tiles);
  const int64_t most = std::max<int64_t>(1, card.multiprocessors / g.blocks);
  g.rows = align_up(ceil_div(r.n, std::min(most, ceil_div(r.n, kSmallRowTile))), kSmallRowTile);
  g.groups = ceil_div(r.n, g.rows);
  g.segment = g.again() ? std::min(r.every, r.t) : r.t;
  g.chunk = std::min(g.segment, std::max<int64_t>(1, kRowsOfChunk / r.n));
  const bool splits = r.cell != CellKind::kGruResetBefore && r.h_masks <= 1 && g.block_tiles == 1 &&
                      g.tiles % kSplit == 0 && r.gates() * g.padded / g.k_block >= kSplit;
  g.split = splits ? kSplit : 1;
  place_weights(card, g);
  return g;
}

std::vector<GateGroup> input_groups(const LoopGeometry& g) {
  if (g.r.x_masks <= 1 && !g.padded_units()) return {{0, g.r.gates()}};
  std::vector<GateGroup> groups;
  for (int64_t gate = 0; gate < g.r.gates(); ++gate) groups.push_back({gate, 1});
  return groups;
}

std::vector<GateGroup> state_groups(const LoopGeometry& g) {
  std::vector<GateGroup> groups;
  if (g.r.h_masks > 1 || g.padded_units())
    for (int64_t gate = 0; gate < g.r.gates(); ++gate) groups.push_back({gate, 1});
  else if (g.r.is_gru())
    groups = {{0, 2}, {2, 1}};
  else
    groups = {{0, g.r.gates()}};
  return groups;
}

LoopScratch loop_scratch(const LoopGeometry& g, bool backward) {
  const Recurrent& r = g.r;
  LoopScratch s;
  const auto take = [&](Bytes bytes) {
    const Bytes at = s.bytes;
    s.bytes += align_up(bytes, kScratchAlignment);
    return at;
  };
  const auto floats = [&](bool exists, int64_t count) { return take(exists ? count * 4 : 0); };
  const auto elements = [&](bool exists, int64_t count) { return take(exists ? count * g.element() : 0); };
  const bool forward = !backward || g.again(), weights = backward && r.out_dw >= 0;
  const int64_t states = r.n * r.u, packed = g.tiles * kUnitTile * g.padded * r.gates(), rows = g.chunk * r.n;
  const bool before = r.cell == CellKind::kGruResetBefore;
  s.packed = elements(forward, packed);
  s.packed_back = elements(backward, packed);
  s.state_h = floats(forward, states);
  s.state_c = floats(forward && r.has_carry(), states);
  s.grad_h = floats(backward, states);
  s.grad_c = floats(backward && r.has_carry(), states);
  s.exchange_bytes = forward ? 2 * g.copies() * g.padded_rows() * g.padded * g.element() : 0;
  s.exchange = take(s.exchange_bytes);
  s.reset = elements(forward && before, g.padded_rows() * g.padded);
  if (forward && before) s.exchange_bytes = s.bytes - s.exchange;
  s.first = take(r.n * 4);
  s.counter_bytes = g.groups * (1 + g.blocks) * kLoopCounterWords * 4;
  s.counters = take(s.counter_bytes);
  s.operand = elements(forward || weights, rows * std::max(r.d, weights ? r.u : 0));
  s.products = floats(forward, rows * g.wide());
  // A block also reads, but does not use, the rows behind the last sample of its group.
  s.sums_bytes = backward ? (rows - r.n + g.groups * g.rows) * g.width() * g.element() : 0;
  s.sums = take(s.sums_bytes);
  s.partial = floats(backward && g.split > 1, g.split * g.padded_rows() * g.tiles * kUnitTile);
  s.input_grad = floats(backward && r.out_dx >= 0, (r.x_masks > 1 ? r.gates() : 1) * rows * r.d);
  const bool wide = weights && g.dtype != DType::kFloat32;
  s.weight_grad = floats(wide, r.d * g.wide());
  s.state_weight_grad = floats(wide, r.u * g.wide());
  s.bias_grad = floats(weights && r.out_db >= 0, g.width());
  const int64_t segment = backward && g.again() ? g.segment * r.n * r.u : 0;
  s.states = elements(true, segment);
  s.carries = elements(r.has_carry(), segment);
  s.gates = elements(true, segment * r.saved());
  const int64_t largest = std::max({forward ? rows * g.wide() : 0, weights ? std::max(r.d, r.u) * g.wide() : 0,
                                    backward && r.out_dx >= 0 ? rows * r.d : 0});
  s.library_bytes = largest == 0 ? 0 : align_up(std::min(kMostScratch, 8 * 4 * largest + kMiB), kScratchAlignment);
  s.library = take(s.library_bytes);
  return s;
}

namespace {

// Of a step, a block reads its operand from the L2 cache, multiplies, and waits for the slowest block.
double loop_seconds(const Card& card, const LoopGeometry& g, bool backward) {
  constexpr double kBarrierSeconds = 4e-6, kBytesPerMultiprocessor = 30e9, kShareOfRate = 0.2;  // on an H200
  const Recurrent& r = g.r;
  const auto rows = static_cast<double>(g.rows), weights = static_cast<double>(weights_of_block(g));
  const auto terms = static_cast<double>(backward ? g.padded * r.gates() / g.split : g.padded);
  const bool in_shared = backward ? g.backward_in_shared : g.forward_in_shared;
  const double read = rows * terms * static_cast<double>(g.element() * g.block_tiles) + (in_shared ? 0 : weights);
  const double flops = 2 * rows * weights / static_cast<double>(g.element());
  const double rate = !g.matrix ? card.flops_f32 : is_half(g.dtype) ? card.flops_half : card.flops_tf32;
  const bool twice = (backward && g.split > 1) || r.cell == CellKind::kGruResetBefore;
  const double step = read / kBytesPerMultiprocessor + flops * card.multiprocessors / (kShareOfRate * rate) +
                      (g.blocks > 1 ? 1 : 0.3) * (twice ? 2 : 1) * kBarrierSeconds;
  return static_cast<double>(r.t) * step;
}

}  // namespace

Result<KernelOffer> offer_recurrent(const Card& card, const NodeView& node) {
  PLIMSOLL_ASSIGN(const LoopGeometry g, loop_geometry(card, node));
  const bool backward = node.node.op == "recurrent_grad";
  const Recurrent& r = g.r;
  KernelOffer offer;
  offer.kernel = kLoopKernel;
  offer.workspace = granted(loop_scratch(g, backward).bytes);
  const auto steps = static_cast<double>(r.n * r.t);
  const auto wide = static_cast<double>(g.wide());
  double products = 0;  // multiplications of all chunks
  if (!backward || g.again()) products += steps * static_cast<double>(r.d) * wide;
  if (backward && r.out_dx >= 0) products += steps * static_cast<double>(r.d) * wide;
  if (backward && r.out_dw >= 0) products += steps * static_cast<double>(r.d + r.u) * wide;
  offer.seconds = matrix_seconds(card, g.dtype, 2 * products, node.traffic(), 0.5) + loop_seconds(card, g, backward) +
                  (backward && g.again() ? loop_seconds(card, g, false) : 0);
  const int64_t chunks = (g.segment + g.chunk - 1) / g.chunk * ((r.t + g.segment - 1) / g.segment);
  const int64_t launches = 4 + static_cast<int64_t>(input_groups(g).size()) * 2;
  offer.primitives = static_cast<int>(6 + chunks * (backward ? 3 : 1) * launches);
  return offer;
}

}  // namespace plimsoll::engine::cuda
