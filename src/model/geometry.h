// Windows over images of 1, 2 or 3 spatial dimensions, channels last. The ops take images of two; one of one dimension
// [N,L,C] is seen by them as an image of height 1, [N,1,L,C], which is a view.
#pragma once

#include <string>

#include "model/layer.h"

namespace plimsoll::engine {

inline constexpr size_t kOpRank = 2;  // spatial dimensions of conv2d and the like

enum class WindowPadding { kValid, kSame, kCausal };

struct Geometry {
  Sizes kernel, strides, dilations;
  WindowPadding padding = WindowPadding::kValid;

  size_t rank() const { return kernel.size(); }
  int64_t extent(size_t d) const { return (kernel[d] - 1) * dilations[d] + 1; }
};

// Where the windows lie along each dimension of one sample.
Result<std::vector<KernelWindow>> place_windows(const Geometry& geometry, const Shape& sample,
                                                const std::string& where);
// [sizes..., channels], checked; the sizes are the windows' outputs.
Result<Shape> image_shape(const std::vector<KernelWindow>& windows, int64_t channels, const std::string& where);
// [kernel..., in, out], checked.
Result<Shape> kernel_shape(const Geometry& geometry, int64_t in, int64_t out, const std::string& where);

// In the form of the ops' two dimensions: `outer` stands for the one that an image of rank 1 lacks.
std::vector<int64_t> op_sizes(const Sizes& sizes, int64_t outer = 1);
std::vector<int64_t> op_pads(const std::vector<KernelWindow>& windows);

// An image, or a kernel, as the ops take it (their spatial dimensions are the last but two), and an op's image as the
// layer's output.
ValueId as_image(const BuildCall& call, ValueId image, size_t rank);
ValueId as_kernel(const BuildCall& call, ValueId kernel, size_t rank);
ValueId as_output(const BuildCall& call, ValueId image, size_t rank);

}  // namespace plimsoll::engine
