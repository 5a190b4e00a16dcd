#include "ops/strided.h"

#include <algorithm>

namespace plimsoll::engine {

std::vector<int64_t> row_major_strides(const Shape& shape) {
  std::vector<int64_t> strides(shape.rank(), 1);
  for (size_t d = shape.rank(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

std::vector<int64_t> inverse_permutation(const std::vector<int64_t>& perm) {
  std::vector<int64_t> inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) inverse[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  return inverse;
}

StridedView transposed_view(const Shape& x, const std::vector<int64_t>& perm) {
  const auto strides = row_major_strides(x);
  StridedView view;
  for (int64_t axis : perm) view.dims.push_back({x[static_cast<size_t>(axis)], strides[static_cast<size_t>(axis)]});
  return view;
}

StridedView sliced_view(const Shape& x, const Attrs& attrs) {
  const auto strides = row_major_strides(x);
  const auto &begin = attrs.list("begin"), &size = attrs.list("size"), &steps = attrs.list("strides");
  StridedView view;
  for (size_t d = 0; d < x.rank(); ++d) {
    view.dims.push_back({size[d], steps[d] * strides[d]});
    view.offset += begin[d] * strides[d];
  }
  return view;
}

StridedView broadcast_view(const Shape& x, const Shape& y) {
  const auto strides = row_major_strides(x);
  const size_t shift = y.rank() - x.rank();
  StridedView view;
  for (size_t d = 0; d < y.rank(); ++d)
    view.dims.push_back({y[d], d < shift || x[d - shift] == 1 ? 0 : strides[d - shift]});
  return view;
}

StridedView collapsed(const StridedView& view) {
  StridedView result;
  result.offset = view.offset;
  for (const StridedDim& dim : view.dims) {
    if (dim.extent == 1) continue;
    if (!result.dims.empty() && result.dims.back().stride == dim.extent * dim.stride) {
      result.dims.back() = {result.dims.back().extent * dim.extent, dim.stride};
    } else {
      result.dims.push_back(dim);
    }
  }
  return result;
}

ReducedAxes reduced_axes(const Shape& x, const Shape& y) {
  const auto strides = row_major_strides(x);
  const size_t shift = x.rank() - y.rank();
  ReducedAxes axes;
  for (size_t d = 0; d < x.rank(); ++d) {
    if (x[d] == 1) continue;
    const bool reduced = d < shift || y[d - shift] == 1;
    (reduced ? axes.reduced : axes.kept) *= x[d];
    if (!axes.groups.empty() && axes.groups.back().reduced == reduced) {
      axes.groups.back().extent *= x[d];
      axes.groups.back().stride = strides[d];
    } else {
      axes.groups.push_back({x[d], strides[d], reduced});
    }
  }
  return axes;
}

std::vector<int64_t> padded_sources(int64_t extent, int64_t before, int64_t after, const std::string& mode) {
  std::vector<int64_t> sources(static_cast<size_t>(before + extent + after));
  for (int64_t i = -before; i < extent + after; ++i) {
    int64_t from = i;
    if (i < 0 || i >= extent) {
      if (mode == "constant") from = -1;
      if (mode == "edge") from = std::clamp<int64_t>(i, 0, extent - 1);
      // reflect leaves the edge out, symmetric repeats it.
      if (mode == "reflect") from = i < 0 ? -i : 2 * extent - 2 - i;
      if (mode == "symmetric") from = i < 0 ? -i - 1 : 2 * extent - 1 - i;
    }
    sources[static_cast<size_t>(i + before)] = from;
  }
  return sources;
}

}  // namespace plimsoll::engine
