// The axes and results that several families of operations share.
#pragma once

#include <limits>

#include "model/operation.h"

namespace plimsoll::engine {

// A tensor, the axes of a reduction over it, and whether they stay as dimensions of 1.
struct GivenAxes {
  OpArgument x;
  std::optional<std::vector<int64_t>> given;  // nullopt: None
  bool keep = false;

  // Returns the axes, sorted. Refuses the batch; empty after an error.
  std::vector<size_t> axes(OpWriter& w, size_t rank) const;
};
GivenAxes read_reduction(OpReader& r);

// The mean of the squared distances from the mean.
Operand variance(OpWriter& w, const Operand& x, const std::vector<size_t>& axes, bool keep);

// Moves axes to the end and flattens them to one dimension there. `undo` returns a tensor of that form with one last
// dimension to the order and the shape that it had.
struct AxesAtEnd {
  Operand flat;
  std::vector<int64_t> perm, moved;  // the transposition, and the dimensions after it

  AxesAtEnd(OpWriter& w, const Operand& x, const std::vector<size_t>& axes);
  Operand undo(OpWriter& w, const Operand& flat) const;
};

// Replaces NaN, and infinities by the ends of float32's range.
Operand without_nan(OpWriter& w, const Operand& x, double nan, double high = std::numeric_limits<float>::max(),
                    double low = std::numeric_limits<float>::lowest());

// Sorts along the last axis; the second result holds the positions.
Operands sorted(OpWriter& w, const Operand& x, bool descending);

}  // namespace plimsoll::engine
