// How regular reads and writes run: which kernel moves a strided view, and the axes of a padding. Shared by offers and
// binders.
#pragma once

#include <cstdint>
#include <optional>

#include "backends/cuda/move/strided_axes.h"
#include "ops/strided.h"

namespace plimsoll::engine::cuda {

// The axes of a view for the copy kernel, whose innermost axis has stride 0 or 1: an axis of one element is added where
// it has another.
inline std::optional<StridedView> copy_axes(const StridedView& view) {
  StridedView axes = collapsed(view);
  if (!axes.dims.empty() && axes.dims.back().stride != 0 && axes.dims.back().stride != 1) axes.dims.push_back({1, 1});
  if (axes.dims.size() > static_cast<size_t>(kStridedAxes)) return std::nullopt;
  return axes;
}

// Empty if the view has no two such axes that are long enough for tiles.
inline std::optional<TiledTranspose> tiled_transpose(const StridedView& view) {
  constexpr int64_t kLeast = 8;
  const StridedView axes = collapsed(view);
  const size_t rank = axes.dims.size();
  if (rank < 2 || rank > static_cast<size_t>(kStridedAxes) || axes.dims.back().stride == 1) return std::nullopt;
  TiledTranspose tiled;
  bool found = false;
  int64_t stride = 1;
  for (size_t d = rank; d-- > 0; stride *= axes.dims[d].extent) {
    const StridedDim& dim = axes.dims[d];
    if (d + 1 == rank) {
      tiled.columns = dim.extent;
      tiled.column_stride = dim.stride;
    } else if (dim.stride == 1) {
      tiled.rows = dim.extent;
      tiled.row_stride = stride;
      found = true;
    } else {
      tiled.sizes[tiled.axes] = dim.extent;
      tiled.from[tiled.axes] = dim.stride;
      tiled.to[tiled.axes++] = stride;
    }
  }
  if (!found || tiled.rows < kLeast || tiled.columns < kLeast) return std::nullopt;
  return tiled;
}

inline std::optional<PadAxes> padding_of(const Shape& x, const Attrs& attrs) {
  const auto& pads = attrs.list("pads");
  const std::string& mode = attrs.text("mode");
  PadAxes padding;
  padding.mode = mode == "reflect"     ? PadAxes::Mode::kReflect
                 : mode == "symmetric" ? PadAxes::Mode::kSymmetric
                 : mode == "edge"      ? PadAxes::Mode::kEdge
                                       : PadAxes::Mode::kConstant;
  size_t end = x.rank();
  while (end > 0 && pads[2 * end - 1] == 0 && pads[2 * end - 2] == 0) padding.inner *= x[--end];
  bool joins = false;
  for (size_t d = 0; d < end; ++d) {
    const bool plain = pads[2 * d] == 0 && pads[2 * d + 1] == 0;
    if (plain && joins) {
      padding.extent[padding.axes - 1] *= x[d];
      continue;
    }
    if (padding.axes == kStridedAxes) return std::nullopt;
    padding.extent[padding.axes] = x[d];
    padding.before[padding.axes] = pads[2 * d];
    padding.after[padding.axes++] = pads[2 * d + 1];
    joins = plain;
  }
  for (int i = 0; i < padding.axes; ++i) padding.padded[i] = padding.before[i] + padding.extent[i] + padding.after[i];
  return padding;
}

}  // namespace plimsoll::engine::cuda
