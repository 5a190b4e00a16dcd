// A pass over memory: element-wise nodes, and channel sums at their end, written out as the source of one CUDA kernel.
//
// The tensors of a pass share one shape, seen as rows of `channels` elements (a pass without channel vectors sees rows
// of `width`). A thread keeps its channels and walks down the rows: channel vectors are read once, full-size inputs
// `width` elements at a time. Values between the nodes stay in registers, rounded to their dtype so that a fused result
// equals an unfused one. Sums are taken per thread, per block, and over the blocks by whichever block comes last, each
// in a fixed order: the same bits every run. The source names no sizes, so equal bodies share one compiled kernel.
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
  int width = 1;  // elements a thread reads at once
  int sums = 0;   // channel sums
  // A body of equal parts over different tensors runs as one kernel that is given a table of them: for each part the
  // positions of its inputs and outputs among the node's, and its elements.
  struct Part {
    std::vector<size_t> inputs, outputs;
    int64_t elements = 0;
  };
  std::vector<Part> parts;  // empty: one tensor shape, inputs and outputs in the node's order

  Bytes workspace(const Card& card) const;
};

struct FusedGrid {
  unsigned block_x = 1, block_y = 1, grid_x = 1, grid_y = 1;
};
FusedGrid grid_of(const FusedKernel& pass, const Card& card);

// Rows a block takes of one part, and what the table may take of a kernel's parameters.
inline constexpr int64_t kRowsPerBlock = 1024;
inline constexpr size_t kMostTableBytes = 30000;

// The kernel of a node of op "fused", or of a single element-wise or reduction node. Fails with kUnsupported where a
// node cannot stand in a pass.
Result<FusedKernel> make_fused_kernel(const Graph& graph, const Node& node);
// The same without its source, which is long: all that an offer asks for.
Result<FusedKernel> plan_fused_kernel(const Graph& graph, const Node& node);

int64_t part_blocks(const FusedKernel& pass, const FusedKernel::Part& part);
size_t table_bytes(size_t parts, size_t pointers);

// A body named "group": equal parts over different tensors.
Result<FusedKernel> make_group_kernel(const Graph& body, bool with_source);

bool has_fused_form(const Graph& graph, const Node& node);

}  // namespace plimsoll::engine::cuda
