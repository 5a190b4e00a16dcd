// A fused element-wise kernel: element-wise nodes, optionally ending in channel sums, as the source of one CUDA kernel.
//
// The tensors of a fused kernel share one shape, seen as rows of `channels` elements (rows of `width` if there are no
// channel vectors). A smaller tensor that is repeated to this shape is read where it lies. A thread keeps its channels
// and loops over the rows: channel vectors are read once, full-size inputs `width` elements at a time. Intermediate
// values stay in registers, rounded to their dtype so that a fused result equals an unfused one. Sums are taken per
// thread, per block, and over the blocks by the block that finishes last, each in a fixed order, so every run gives the
// same bits. The source contains no sizes, so equal bodies share one compiled kernel.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "backends/cuda/card.h"
#include "graph/graph.h"

namespace plimsoll::engine::cuda {

struct FusedKernel {
  std::string source;  // defines extern "C" kernel `pass`
  int64_t rows = 1, channels = 1;
  int64_t segments = 1;  // parts of equally many rows that are summed separately; `rows` are those of one
  int width = 1;         // elements a thread reads at once
  int sums = 0;          // number of channel sums
  // A body of equal parts over different tensors runs as one kernel that gets a table of the parts: for each part the
  // positions of its inputs and outputs in the node's lists, and its number of elements.
  struct Part {
    std::vector<size_t> inputs, outputs;
    int64_t elements = 0;
  };
  // Sizes of repeated tensors, which the kernel takes as an argument after the others: for each dimension its size, the
  // magic number and shift of a division by it, and the stride of the smaller tensor.
  std::vector<uint32_t> numbers;
  std::vector<Part> parts;  // empty if there is one tensor shape; inputs and outputs are then in the node's order

  Bytes workspace(const Card& card) const;
};

struct FusedGrid {
  unsigned block_x = 1, block_y = 1, grid_x = 1, grid_y = 1, grid_z = 1;
};
FusedGrid grid_of(const FusedKernel& pass, const Card& card);

// Rows of one part per block, and the bytes of kernel parameters that the table may use.
inline constexpr int64_t kRowsPerBlock = 1024;
inline constexpr size_t kMostTableBytes = 30000;

// The kernel of a "fused" node, or of a single element-wise or reduction node. Fails with kUnsupported if a node cannot
// be part of a fused kernel.
Result<FusedKernel> make_fused_kernel(const Graph& graph, const Node& node);
// The same without its source, which is long; an offer does not need it.
Result<FusedKernel> plan_fused_kernel(const Graph& graph, const Node& node);

// The seconds that the kernel of a node takes beyond its memory traffic.
double arithmetic_seconds(const Card& card, const Graph& graph, const Node& node, const FusedKernel& kernel);

int64_t part_blocks(const FusedKernel& pass, const FusedKernel::Part& part);
size_t table_bytes(size_t parts, size_t pointers);

// For a body named "group": equal parts over different tensors.
Result<FusedKernel> make_group_kernel(const Graph& body, bool with_source);

bool has_fused_form(const Graph& graph, const Node& node);

}  // namespace plimsoll::engine::cuda
