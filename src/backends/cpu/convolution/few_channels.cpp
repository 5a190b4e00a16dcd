// Direct weight gradient for images with few channels (at most 4), one row of results at a time. Neither x nor dy is
// packed; see simd/few_channels.inl. dx and y are left to oneDNN.
#include <algorithm>

#include "backends/cpu/convolution/convolution.h"
#include "backends/cpu/convolution/slices.h"
#include "backends/cpu/simd/simd.h"

namespace plimsoll::engine::cpu {

namespace {

struct Rows {
  Convolution c;

  bool padded() const { return c.left > 0 || c.right > 0; }
  int64_t width() const { return (c.w + c.left + c.right) * c.c; }
  // Scratch elements of one thread, for image rows with their padding.
  int64_t scratch() const { return padded() ? align_up(4 * c.kh * width()) / 4 : 0; }
  int64_t count() const { return c.n * c.oh; }

  // The image rows that contribute to row `row` of the result, 0 <= row < count().
  FewChannelRows under(const float* x, int64_t row, float* scratch) const {
    FewChannelRows t{{}, c.kh, c.kw * c.c, c.sw * c.c, c.ow, c.o};
    for (int64_t r = 0; r < c.kh; ++r) {
      const int64_t h = row % c.oh * c.sh + r * c.dh - c.top;
      if (h < 0 || h >= c.h) continue;
      const float* from = x + (row / c.oh * c.h + h) * c.w * c.c;
      t.rows[r] = from;
      if (!padded()) continue;
      float* to = scratch + r * width();
      t.rows[r] = to;
      std::fill_n(to, c.left * c.c, 0.0F);
      std::copy_n(from, c.w * c.c, to + c.left * c.c);
      std::fill_n(to + (c.left + c.w) * c.c, c.right * c.c, 0.0F);
    }
    return t;
  }
};

}  // namespace

// Measured against oneDNN 2.6.3 on one core, images of 28 to 128 pixels per side, 1 and 3 input channels, 16 and 32
// output channels: 0.55 to 0.8 of its time with AVX-512, 0.4 to 0.7 with AVX2. (For the forward pass oneDNN is faster.)
bool few_channels_fit(const Convolution& c) {
  return !c.is_volume() && c.groups == 1 && c.c <= 4 && c.kh <= kMaxFewChannelRows && c.dw == 1 && c.o % 16 == 0;
}

Result<Recipe> few_channel_weight_grad_recipe(const Problem& p) {
  const Rows rows{Convolution(p)};
  const Convolution& c = rows.c;
  const Slices slices = make_slices(rows.count(), c.kh * c.kw * c.c * c.o, c.o, p.machine.threads);
  const bool bias = c.bias;
  const Bytes workspace = slices.workspace() + 4 * p.machine.threads * rows.scratch();
  const double seconds = p.machine.seconds(c.flops(), 0.65, p.traffic());
  return own_recipe(std::string(kFewChannelKernel), workspace, seconds, [=](const BoundNode& node) {
    const auto *x = input<const float>(node, 0), *dy = input<const float>(node, 1);
    const GradientPlace place{output<float>(node, 0), bias ? output<float>(node, 1) : nullptr};
    auto* partials = static_cast<float*>(node.workspace);
    float* scratch = partials + slices.workspace() / 4;
    return [=] {
      slices.sum(partials, place, [&](int64_t begin, int64_t end, float* sums, float* bias_sums, int thread) {
        for (int64_t row = begin; row < end; ++row) {
          const FewChannelRows t = rows.under(x, row, scratch + thread * rows.scratch());
          simd().few_channel_weight_grad(t, dy + row * rows.c.ow * rows.c.o, sums, bias_sums);
        }
      });
    };
  });
}

}  // namespace plimsoll::engine::cpu
