// Convolution kernels: oneDNN's, or our own where they are faster.
#pragma once

#include <string_view>

#include "backends/common/convolution.h"
#include "backends/cpu/recipe.h"

namespace plimsoll::engine::cpu {

inline constexpr std::string_view kFallbackPrefix = "im2col:";

// For each of our own kernels: whether it can compute a convolution, and whether it is faster than oneDNN.
inline constexpr std::string_view kPointwiseKernel = "gemm_1x1";  // 1x1, for all three ops
bool pointwise_fits(const Convolution& convolution);
bool pointwise_is_faster(const Convolution& convolution);
Result<Recipe> pointwise_recipe(const Problem& problem);

inline constexpr std::string_view kWinogradKernel = "winograd_2x4";  // 3x3, for all three ops
bool winograd_fits(const Convolution& convolution);
bool winograd_is_faster(const Convolution& convolution);
Result<Recipe> winograd_recipe(const Problem& problem);

inline constexpr std::string_view kFewChannelKernel = "thin";  // the weight gradient of an image with few channels
bool few_channels_fit(const Convolution& convolution);         // true also means that it is faster than oneDNN
Result<Recipe> few_channel_weight_grad_recipe(const Problem& problem);

inline constexpr std::string_view kSequenceKernel = "outer_1d";  // the weight gradient along one dimension
bool sequence_fits(const Convolution& convolution);
bool sequence_is_faster(const Convolution& convolution);
Result<Recipe> sequence_weight_grad_recipe(const Problem& problem);

}  // namespace plimsoll::engine::cpu
