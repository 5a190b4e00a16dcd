// The weight gradient of a 1x1 convolution as a matrix product over all pixels, dw[c,o] = x[pixels,c]^T dy[pixels,o],
// with a row of ones below x^T for the gradient of the bias.
#include <algorithm>

#include "backends/cpu/convolution.h"
#include "backends/cpu/gemm.h"

namespace plimsoll::cpu {

namespace {

Product product_of(const Convolution& c) {
  Product p;
  p.m = c.c + (c.bias != nullptr ? 1 : 0);
  p.n = c.o;
  p.k = c.n * c.oh * c.ow;
  p.a_row = 1, p.a_column = c.c;
  p.b_row = c.o, p.b_column = 1;
  p.c_row = c.o;
  p.ones_below = c.bias != nullptr;
  return p;
}

}  // namespace

bool pointwise_fits(const Convolution& c) {
  return c.kh == 1 && c.kw == 1 && c.sh == 1 && c.sw == 1 && c.groups == 1 && c.top == 0 && c.bottom == 0 &&
         c.left == 0 && c.right == 0;
}

// Measured beside oneDNN 2.6.3's jit_1x1 in processor time of one core, with AVX-512 and with AVX2: 0.8 of its time
// where x and dy do not fit into the last cache (131,072 pixels, 64 to 128 channels up to 256 to 256); as long, or up
// to 1.3 times as long, where they do, and with fewer channels. A larger gradient would make the slices' partial sums
// large.
bool pointwise_is_faster(const Convolution& c) {
  const Bytes read = c.image->bytes() + c.result->bytes();
  return c.c >= 64 && c.o >= 128 && c.c * c.o <= int64_t{256} * 256 && read >= 48 * kMiB;
}

Result<Recipe> pointwise_weight_grad_recipe(const Problem& problem) {
  const Convolution c = convolution_of(problem);
  const Product product = product_of(c);
  const int threads = problem.machine.threads;
  const bool bias = c.bias != nullptr;
  // Weights and bias come out as one matrix and go to two places.
  const Bytes joint = bias ? align_up(4 * product.m * product.n) : 0;
  return own_recipe(std::string(kPointwiseKernel), joint + parallel_workspace(product, threads),
                    problem.machine.seconds(c.flops(), 0.7, problem.traffic()), [=](const BoundNode& node) {
                      Product bound = product;
                      bound.a = input<const float>(node, 0);
                      bound.b = input<const float>(node, 1);
                      auto* workspace = static_cast<float*>(node.workspace);
                      float* weights = output<float>(node, 0);
                      bound.c = bias ? workspace : weights;
                      float* bias_out = bias ? output<float>(node, 1) : nullptr;
                      return [=] {
                        multiply_parallel(bound, threads, workspace + joint / 4);
                        if (!bias) return;
                        std::copy_n(bound.c, c.c * c.o, weights);
                        std::copy_n(bound.c + c.c * c.o, c.o, bias_out);
                      };
                    });
}

}  // namespace plimsoll::cpu
