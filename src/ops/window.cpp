#include "ops/window.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <vector>

namespace plimsoll::engine {

WindowGeometry window_geometry(const int64_t* kernel, const int64_t* input, const Attrs& attrs) {
  const auto &strides = attrs.list("strides"), &pads = attrs.list("pads");
  assert(strides.size() <= kMostSpatial && pads.size() == 2 * strides.size());
  WindowGeometry g;
  g.rank = strides.size();
  g.dilations.fill(1);
  if (attrs.has("dilations")) std::copy_n(attrs.list("dilations").begin(), g.rank, g.dilations.begin());
  for (size_t axis = 0; axis < g.rank; ++axis) {
    g.kernel[axis] = kernel[axis];
    g.input[axis] = input[axis];
    g.strides[axis] = strides[axis];
    g.before[axis] = pads[2 * axis];
    g.after[axis] = pads[2 * axis + 1];
    const int64_t span = (g.kernel[axis] - 1) * g.dilations[axis] + 1;
    const int64_t room = g.input[axis] + g.before[axis] + g.after[axis] - span;
    g.output[axis] = room < 0 ? 0 : room / g.strides[axis] + 1;
  }
  return g;
}

bool WindowGeometry::has_output() const {
  return std::all_of(output.begin(), output.begin() + static_cast<std::ptrdiff_t>(rank),
                     [](int64_t size) { return size > 0; });
}

int64_t WindowGeometry::window_elements() const {
  int64_t elements = 1;
  for (size_t axis = 0; axis < rank; ++axis)
    if (__builtin_mul_overflow(elements, kernel[axis], &elements)) return INT64_MAX;
  return elements;
}

std::string WindowGeometry::padded_input() const {
  std::vector<int64_t> pads;
  for (size_t axis = 0; axis < rank; ++axis) pads.insert(pads.end(), {before[axis], after[axis]});
  return fmt::format("{} padded by {}",
                     fmt::join(input.begin(), input.begin() + static_cast<std::ptrdiff_t>(rank), "x"),
                     fmt::join(pads, ","));
}

}  // namespace plimsoll::engine
