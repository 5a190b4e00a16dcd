// affine_image and its gradient. Rows of the result run in parallel; the gradient adds pixels of a sample in order, so
// one thread computes a whole sample and nothing depends on the threads.
#include "ops/affine_image.h"

#include <algorithm>

#include "backends/cpu/parallel.h"
#include "backends/cpu/recipe.h"

namespace plimsoll::engine::cpu {

namespace {

constexpr int64_t kGrain = 8192;

struct Images {
  int64_t batch, height, width, channels;
  FillMode mode;
  bool nearest;
  float fill;

  explicit Images(const Problem& p)
      : batch(p.in_shape(0)[0]),
        height(p.in_shape(0)[1]),
        width(p.in_shape(0)[2]),
        channels(p.in_shape(0)[3]),
        mode(fill_mode(p.attrs().text("fill_mode")).value_or(FillMode::kConstant)),
        nearest(p.attrs().text("interpolation") == "nearest"),
        fill(static_cast<float>(p.attrs().real("fill_value"))) {}

  int64_t row() const { return width * channels; }
  int64_t sample() const { return height * row(); }
};

void weighted_pixel(const PixelTaps<float>& taps, const float* image, int64_t channels, float fill, float* to) {
  if (taps.count == 1) {
    if (taps.pixel[0] < 0)
      std::fill_n(to, channels, fill);
    else
      std::copy_n(image + taps.pixel[0] * channels, channels, to);
    return;
  }
  if (std::min({taps.pixel[0], taps.pixel[1], taps.pixel[2], taps.pixel[3]}) >= 0) {
    const float *p = image + taps.pixel[0] * channels, *q = image + taps.pixel[1] * channels,
                *r = image + taps.pixel[2] * channels, *s = image + taps.pixel[3] * channels;
    for (int64_t c = 0; c < channels; ++c)
      to[c] = taps.weight[0] * p[c] + taps.weight[1] * q[c] + taps.weight[2] * r[c] + taps.weight[3] * s[c];
    return;
  }
  for (int64_t c = 0; c < channels; ++c) {
    float sum = 0;
    for (int t = 0; t < 4; ++t)
      sum += taps.weight[t] * (taps.pixel[t] < 0 ? fill : image[taps.pixel[t] * channels + c]);
    to[c] = sum;
  }
}

// One row of the result. Most pixels read four pixels inside the image, which no fill mode changes: they need neither
// its rules nor a call of floor(). kChannels: their number, or 0 if it is known at run time only.
template <int kChannels>
void affine_row(const Images& g, const float* transform, const float* image, int64_t y, float* to) {
  const int64_t channels = kChannels == 0 ? g.channels : kChannels;
  const auto last_column = static_cast<float>(g.width - 1), last_row = static_cast<float>(g.height - 1);
  const float down = static_cast<float>(y);
  for (int64_t x = 0; x < g.width; ++x, to += channels) {
    const auto right = static_cast<float>(x);
    const float column = transform[0] * right + transform[1] * down + transform[2];
    const float row = transform[3] * right + transform[4] * down + transform[5];
    const bool inside = column >= 0 && column < last_column && row >= 0 && row < last_row;
    if (g.nearest || !inside) {
      weighted_pixel(pixel_taps(transform, x, y, g.height, g.width, g.mode, g.nearest), image, channels, g.fill, to);
      continue;
    }
    const auto c = static_cast<int32_t>(column), r = static_cast<int32_t>(row);
    const float after = column - static_cast<float>(c), below = row - static_cast<float>(r);
    const float before = static_cast<float>(c + 1) - column, above = static_cast<float>(r + 1) - row;
    const float weights[4] = {above * before, above * after, below * before, below * after};
    const float *top = image + (r * g.width + c) * channels, *bottom = top + g.width * channels;
    for (int64_t k = 0; k < channels; ++k)
      to[k] = weights[0] * top[k] + weights[1] * top[channels + k] + weights[2] * bottom[k] +
              weights[3] * bottom[channels + k];
  }
}

using AffineRow = void (*)(const Images&, const float*, const float*, int64_t, float*);
AffineRow affine_row_of(int64_t channels) {
  return channels == 1 ? affine_row<1> : channels == 3 ? affine_row<3> : channels == 4 ? affine_row<4> : affine_row<0>;
}

void sample_gradient(const Images& g, const float* transform, const float* dy, float* dx) {
  std::fill_n(dx, g.sample(), 0.0F);
  for (int64_t y = 0; y < g.height; ++y)
    for (int64_t x = 0; x < g.width; ++x, dy += g.channels) {
      const auto taps = pixel_taps(transform, x, y, g.height, g.width, g.mode, g.nearest);
      for (int t = 0; t < taps.count; ++t)
        for (int64_t c = 0; taps.pixel[t] >= 0 && c < g.channels; ++c)
          dx[taps.pixel[t] * g.channels + c] += taps.weight[t] * dy[c];
    }
}

}  // namespace

Result<Recipe> affine_image_recipe(const Problem& p) {
  const Images g(p);
  const bool grad = p.node.op == "affine_image_grad";
  const AffineRow affine = affine_row_of(g.channels);
  const int threads = p.machine.threads;
  const double seconds = p.machine.seconds(20.0 * static_cast<double>(g.batch * g.sample()), 0.1, p.traffic());
  return own_recipe(p.node.op, 0, seconds, [=](const BoundNode& node) {
    const auto *from = input<const float>(node, 0), *transforms = input<const float>(node, 1);
    auto* to = output<float>(node, 0);
    return [=] {
      if (grad) {
        parallel_ranges(threads, g.batch, 1, [&](int64_t begin, int64_t end) {
          for (int64_t n = begin; n < end; ++n)
            sample_gradient(g, transforms + n * 6, from + n * g.sample(), to + n * g.sample());
        });
        return;
      }
      parallel_ranges(threads, g.batch * g.height, 1 + kGrain / g.row(), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const int64_t n = row / g.height, y = row % g.height;
          affine(g, transforms + n * 6, from + n * g.sample(), y, to + row * g.row());
        }
      });
    };
  });
}

}  // namespace plimsoll::engine::cpu
