// A convolution's geometry, whichever of its three directions a node computes.
#pragma once

#include <string_view>

#include "backends/cpu/recipe.h"

namespace plimsoll::cpu {

struct Convolution {
  const Value *image, *weights, *bias, *result;  // x (or dx), w (or dw), b (or db; may be null), y (or dy)
  int64_t n, h, w, c, oh, ow, o, kh, kw;
  int64_t sh, sw, dh, dw, top, bottom, left, right, groups;
  bool relu;

  double flops() const {
    const int64_t depth = c / groups;
    return 2.0 * static_cast<double>(n * oh * ow) * static_cast<double>(o) * static_cast<double>(kh * kw * depth);
  }
};

Convolution convolution_of(const Problem& problem);

inline constexpr std::string_view kFallbackPrefix = "im2col:";

// Own kernels: whether one can compute a convolution, and whether it does so faster than oneDNN.
inline constexpr std::string_view kPointwiseKernel = "gemm_1x1";  // 1x1, in all three directions
bool pointwise_fits(const Convolution& convolution);
bool pointwise_is_faster(const Convolution& convolution, const std::string& op);
Result<Recipe> pointwise_recipe(const Problem& problem);

inline constexpr std::string_view kWinogradKernel = "winograd_2x4";  // 3x3, in all three directions
bool winograd_fits(const Convolution& convolution);
bool winograd_is_faster(const Convolution& convolution, bool backwards);
Result<Recipe> winograd_recipe(const Problem& problem);

inline constexpr std::string_view kFewChannelKernel = "thin";  // the weight gradient under an image with few channels
bool few_channels_fit(const Convolution& convolution);         // and it is faster then
Result<Recipe> few_channel_weight_grad_recipe(const Problem& problem);

}  // namespace plimsoll::cpu
