// 1x1 convolutions as a GEMM over all pixels: y[pixels,o] = x[pixels,c] w[c,o]; the input gradient is dx[pixels,c] =
// dy[pixels,o] w[c,o]^T; the weight gradient is dw[c,o] = x[pixels,c]^T dy[pixels,o].
#include <algorithm>

#include "backends/cpu/convolution/convolution.h"
#include "backends/cpu/convolution/slices.h"
#include "backends/cpu/parallel.h"
#include "backends/cpu/simd/simd.h"

namespace plimsoll::engine::cpu {

bool pointwise_fits(const Convolution& c) {
  return !c.is_volume() && c.kh == 1 && c.kw == 1 && c.sh == 1 && c.sw == 1 && c.groups == 1 && c.top == 0 &&
         c.bottom == 0 && c.left == 0 && c.right == 0 && c.c % 16 == 0 && c.o % 16 == 0;
}

namespace {

constexpr int64_t kPixelsOfAnItem = 288;  // a multiple of the register block's rows, with AVX-512 and without
constexpr int64_t kManyChannels = 128;

Recipe product_recipe(const Problem& problem, const Convolution& c) {
  const bool backwards = c.pass == ConvolutionPass::kInputGrad, has_bias = c.bias, relu = c.relu;
  const int64_t k = backwards ? c.o : c.c, n = backwards ? c.c : c.o, pixels = c.output_pixels();
  const int64_t items = (pixels + kPixelsOfAnItem - 1) / kPixelsOfAnItem;
  const int threads = problem.machine.threads;
  const Bytes written = problem.out(0).bytes();
  const double seconds = problem.machine.seconds(c.flops(), 0.75, problem.traffic());
  return own_recipe(std::string(kPointwiseKernel), 4 * k * n, seconds, [=](const BoundNode& node) {
    const auto *x = input<const float>(node, 0), *w = input<const float>(node, 1);
    auto* y = output<float>(node, 0);
    auto* panels = static_cast<float*>(node.workspace);
    const bool stream = goes_past_caches(y, written);
    const PointwiseProduct product{k, n, panels, has_bias ? input<const float>(node, 2) : nullptr, relu, stream};
    return [=] {
      simd().pointwise_panels(w, k, n, backwards, panels);
      parallel_items(threads, items, [&](int64_t item, int) {
        const int64_t first = item * kPixelsOfAnItem;
        simd().pointwise_forward(product, x + first * k, std::min(kPixelsOfAnItem, pixels - first), y + first * n);
      });
    };
  });
}

Recipe weight_gradient_recipe(const Problem& problem, const Convolution& c) {
  const Slices slices = make_slices(c.output_pixels(), c.c * c.o, c.o, problem.machine.threads);
  const bool bias = c.bias;
  const double seconds = problem.machine.seconds(c.flops(), 0.75, problem.traffic());
  return own_recipe(std::string(kPointwiseKernel), slices.workspace(), seconds, [=](const BoundNode& node) {
    const auto *x = input<const float>(node, 0), *dy = input<const float>(node, 1);
    const GradientPlace place{output<float>(node, 0), bias ? output<float>(node, 1) : nullptr};
    return [=, workspace = static_cast<float*>(node.workspace)] {
      slices.sum(workspace, place, [&](int64_t begin, int64_t end, float* sums, float* bias_sums, int) {
        simd().pointwise_weight_grad(x + begin * c.c, c.c, dy + begin * c.o, c.o, end - begin, sums, bias_sums);
      });
    };
  });
}

}  // namespace

// Measured against oneDNN 2.6.3 on one core. Weight gradient, from 16 x 16 up to 256 x 256 channels: 0.5 to 1.0 of its
// time with AVX-512, 0.5 to 0.95 with AVX2; up to 1.2 for more channels. Forward and input gradient: 0.95 where many
// channels are written with non-temporal stores, 1.0 to 1.15 elsewhere.
bool pointwise_is_faster(const Convolution& c) {
  if (c.pass == ConvolutionPass::kWeightGrad) return c.c * c.o <= int64_t{256} * 256;
  const Bytes written =
      c.pass == ConvolutionPass::kForward ? c.output_pixels() * c.o * size_of(c.dtype) : c.image->bytes();
  return written >= kStreamBytes && std::min(c.c, c.o) >= kManyChannels;
}

Result<Recipe> pointwise_recipe(const Problem& problem) {
  const Convolution c(problem);
  return c.pass == ConvolutionPass::kWeightGrad ? weight_gradient_recipe(problem, c) : product_recipe(problem, c);
}

}  // namespace plimsoll::engine::cpu
