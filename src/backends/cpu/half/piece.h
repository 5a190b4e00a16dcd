// A node in half precision as a float32 node over a piece of the batch.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/cpu/recipe.h"

namespace plimsoll::engine::cpu {

// How the batch is cut: `pieces` pieces of `rows` samples, of which the last may have fewer.
struct Cut {
  std::string inputs, outputs;  // a letter per value (ops/split.h): s by sample, w whole, + a sum of the pieces
  std::vector<std::string> row_attributes;
  int64_t samples = 1, rows = 1, pieces = 1;

  int64_t rows_of(int64_t piece) const { return piece + 1 < pieces ? rows : samples - (pieces - 1) * rows; }
};

// Uncut if the node cannot be cut, or is small.
Cut cut_of(const Problem& problem);

// A kernel of the float32 node over `rows` samples.
struct PieceKernel {
  std::shared_ptr<const Graph> graph;  // has this node only, with the layouts that its kernel wants
  KernelOffer offer;                   // its workspace suffices for the bound kernel too

  const Node& node() const { return graph->nodes[0]; }
  const Value& in(size_t i) const { return graph->value(node().inputs[i]); }
  const Value& out(size_t i) const { return graph->value(node().outputs[i]); }
};
Result<PieceKernel> piece_kernel(const Problem& problem, const Cut& cut, int64_t rows);

// A reorder between a row-major value and one in another layout.
Result<PieceKernel> reorder_kernel(const Value& from, const Value& to, const Machine& machine);

}  // namespace plimsoll::engine::cpu
