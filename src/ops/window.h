// Windows that slide over images with 1, 2 or 3 spatial dimensions, shared by convolution and pooling.
#pragma once

#include <array>
#include <string>

#include "ops/op.h"

namespace plimsoll::engine {

inline constexpr size_t kMostSpatial = 3;

struct WindowGeometry {
  using Sizes = std::array<int64_t, kMostSpatial>;  // the first `rank` are used, outermost dimension first

  size_t rank = 0;
  Sizes kernel{}, strides{}, before{}, after{}, dilations{}, input{}, output{};

  // Returns the input row (or plane, or column) under a tap; -1 in the padding.
  int64_t source(size_t axis, int64_t at, int64_t tap) const {
    const int64_t i = at * strides[axis] - before[axis] + tap * dilations[axis];
    return i >= 0 && i < input[axis] ? i : -1;
  }
  bool has_output() const;
  int64_t window_elements() const;   // elements of one window; INT64_MAX if there are more
  std::string padded_input() const;  // "8x8 padded by 0,1,0,1", for messages
};

// The number of strides is the rank. Attributes: `strides`, `pads` (before and after, for each dimension) and,
// optionally, `dilations`. `kernel` and `input` begin with the sizes of the window and of the image.
WindowGeometry window_geometry(const int64_t* kernel, const int64_t* input, const Attrs& attrs);

}  // namespace plimsoll::engine
