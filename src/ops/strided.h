// Regular reads of a tensor as plain data: which element of x an element of y comes from. The references and the
// backends share them: transpose, strided_slice and broadcast are one kind of copy, and collapsing dimensions is done
// once.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/tensor.h"
#include "graph/graph.h"

namespace plimsoll::engine {

struct StridedDim {
  int64_t extent, stride;  // the stride is in elements of the strided tensor, and may be negative or 0
};

// Element (i0, i1, ...) of a row-major tensor with these extents is element offset + i0 * stride0 + i1 * stride1 + ...
// of the strided tensor.
struct StridedView {
  std::vector<StridedDim> dims;  // outermost first
  int64_t offset = 0;

  int64_t elements() const {
    int64_t n = 1;
    for (const StridedDim& dim : dims) n *= dim.extent;
    return n;
  }
};

std::vector<int64_t> row_major_strides(const Shape& shape);
std::vector<int64_t> inverse_permutation(const std::vector<int64_t>& perm);

// y[i...] = x[view]: views of x with the extents of y.
StridedView transposed_view(const Shape& x, const std::vector<int64_t>& perm);
StridedView sliced_view(const Shape& x, const Attrs& attrs);  // `begin`, `size` and `strides`
StridedView broadcast_view(const Shape& x, const Shape& y);

// The same view with as few dimensions as possible: dimensions of one element are dropped, and neighbours whose
// elements follow each other are merged. A view of one element has no dimensions.
StridedView collapsed(const StridedView& view);

// Calls body(i, at) for every element: its row-major index and its index in the strided tensor.
template <typename Body>
void for_each_element(const StridedView& view, Body body) {
  const size_t rank = view.dims.size();
  std::vector<int64_t> index(rank, 0);
  const int64_t count = view.elements();
  int64_t at = view.offset;
  for (int64_t i = 0; i < count; ++i) {
    body(i, at);
    for (size_t d = rank; d-- > 0;) {
      at += view.dims[d].stride;
      if (++index[d] < view.dims[d].extent) break;
      at -= view.dims[d].stride * index[d];
      index[d] = 0;
    }
  }
}

// A shape around one axis: [outer, size, inner].
struct AroundAxis {
  int64_t outer = 1, size = 1, inner = 1;

  AroundAxis(const Shape& shape, size_t axis) {
    for (size_t d = 0; d < shape.rank(); ++d) (d < axis ? outer : d == axis ? size : inner) *= shape[d];
  }
};

// A reduction over some dimensions: runs of neighbouring dimensions are merged, so kept and reduced groups alternate.
// Dimensions of one element are dropped.
struct ReducedAxes {
  struct Group {
    int64_t extent, stride;
    bool reduced;
  };
  std::vector<Group> groups;  // outermost first
  int64_t kept = 1, reduced = 1;

  std::vector<StridedDim> dims(bool of_reduced) const {
    std::vector<StridedDim> list;
    for (const Group& group : groups)
      if (group.reduced == of_reduced) list.push_back({group.extent, group.stride});
    return list;
  }
};
// Dimension d of x is reduced if y, aligned with x at the end, lacks it or has size 1 there.
ReducedAxes reduced_axes(const Shape& x, const Shape& y);

// For each index of a padded axis, the index of x that it shows, or -1 for the constant. `extent` is that of x.
std::vector<int64_t> padded_sources(int64_t extent, int64_t before, int64_t after, const std::string& mode);

// Calls f with an unsigned integer of `bytes` bytes (1, 2, 4 or 8), for code that moves elements of any dtype.
template <typename F>
void with_element_of(Bytes bytes, F f) {
  if (bytes == 1) return f(uint8_t{});
  if (bytes == 2) return f(uint16_t{});
  if (bytes == 4) return f(uint32_t{});
  return f(uint64_t{});
}

}  // namespace plimsoll::engine
