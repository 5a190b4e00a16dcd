// How a tile program reads a smaller tensor that is repeated to its shape.
#pragma once

#include <optional>

#include "backends/cpu/simd/simd.h"
#include "ops/strided.h"

namespace plimsoll::engine::cpu {

// Empty if the dimensions cannot be merged to few enough.
inline std::optional<TileView> tile_view(const Shape& small, const Shape& large) {
  const StridedView view = collapsed(broadcast_view(small, large));
  if (view.dims.empty() || view.dims.size() > static_cast<size_t>(TileView::kMostDims)) return std::nullopt;
  TileView result;
  for (const StridedDim& dim : view.dims) {
    result.extent[result.rank] = dim.extent;
    result.stride[result.rank++] = dim.stride;
  }
  return result;
}

}  // namespace plimsoll::engine::cpu
