// The axes of transpositions, strided views and paddings as plain data, without graph headers so that .cu files compile
// quickly.
#pragma once

#include <cstdint>

namespace plimsoll::engine::cuda {

inline constexpr int kStridedAxes = 8;  // after merging

// A transposition of the two innermost axes, one of x and one of y, over the other axes.
struct TiledTranspose {
  int axes = 0;  // the other axes
  int64_t sizes[kStridedAxes] = {}, from[kStridedAxes] = {}, to[kStridedAxes] = {};
  int64_t rows = 1, row_stride = 1;        // the last axis of x: its extent, and its stride in y
  int64_t columns = 1, column_stride = 1;  // the last axis of y: its extent, and its stride in x
};

// A strided view: the axes of the row-major tensor, and their strides in the other one, in elements.
struct ViewAxes {
  int axes = 0;
  int64_t sizes[kStridedAxes] = {}, strides[kStridedAxes] = {};
  int64_t elements = 1;
};

// A padding. Neighbouring axes without padding are merged; the innermost axis is never padded (it may have one
// element).
struct PadAxes {
  enum class Mode : uint8_t { kConstant, kReflect, kSymmetric, kEdge };
  int axes = 0;  // without the innermost run of elements
  int64_t extent[kStridedAxes] = {}, before[kStridedAxes] = {}, after[kStridedAxes] = {};
  int64_t padded[kStridedAxes] = {};  // before + extent + after
  int64_t inner = 1;
  Mode mode = Mode::kConstant;
};

}  // namespace plimsoll::engine::cuda
