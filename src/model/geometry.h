// Windows over images with 1, 2 or 3 spatial dimensions, channels last. The ops take images with two or three. An image
// with one dimension [N,L,C] is passed to them as an image of height 1, [N,1,L,C], which is a view.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "model/layer.h"

namespace plimsoll::engine {

// Returns the number of spatial dimensions of the op that computes a layer with `rank` of them.
inline size_t op_rank(size_t rank) {
  return std::max<size_t>(rank, 2);
}
// Returns "max_pool2d" or "max_pool3d" for "max_pool", and so on.
std::string op_name(std::string_view op, size_t rank, std::string_view suffix = "");

enum class WindowPadding { kValid, kSame, kCausal };

struct Geometry {
  Sizes kernel, strides, dilations;
  WindowPadding padding = WindowPadding::kValid;

  size_t rank() const { return kernel.size(); }
  int64_t extent(size_t d) const { return (kernel[d] - 1) * dilations[d] + 1; }
};

// Places the windows along each dimension of one sample.
Result<std::vector<KernelWindow>> place_windows(const Geometry& geometry, const Shape& sample,
                                                const std::string& where);
// Returns [sizes..., channels], checked. The sizes are the windows' output sizes.
Result<Shape> image_shape(const std::vector<KernelWindow>& windows, int64_t channels, const std::string& where);
// Returns [kernel..., in, out], checked.
Result<Shape> kernel_shape(const Geometry& geometry, int64_t in, int64_t out, const std::string& where);

// Returns the sizes for the op's dimensions. For an image of rank 1, `outer` is the size in the missing dimension.
std::vector<int64_t> op_sizes(const Sizes& sizes, int64_t outer = 1);
std::vector<int64_t> op_pads(const std::vector<KernelWindow>& windows);

// as_image and as_kernel reshape an image or a kernel to the spatial dimensions of the op. as_output reshapes an
// op's image to the layer's output.
ValueId as_image(const BuildCall& call, ValueId image, size_t rank);
ValueId as_kernel(const BuildCall& call, ValueId kernel, size_t rank);
ValueId as_output(const BuildCall& call, ValueId image, size_t rank);

}  // namespace plimsoll::engine
