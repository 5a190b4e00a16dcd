// How convolutions run: by oneDNN, or by own kernels where these are faster.
#pragma once

#include <string_view>

#include "backends/common/convolution.h"
#include "backends/cpu/recipe.h"

namespace plimsoll::engine::cpu {

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

}  // namespace plimsoll::engine::cpu
