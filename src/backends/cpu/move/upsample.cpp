// upsample2d by integer factors and its gradient. The gradient gathers: every element of dx is written exactly once.
#include <algorithm>
#include <cmath>

#include "backends/cpu/parallel.h"
#include "backends/cpu/recipe.h"

namespace plimsoll::engine::cpu {

namespace {

constexpr int64_t kGrain = 16384;

// The two input positions that an output position reads, and the weight of the second one. Pixel centres are at
// half-integers and edges are clamped, as in tf.image.resize.
struct Taps {
  int64_t low, high;
  float weight;
};

Taps taps_of(int64_t at, int64_t factor, int64_t size, bool bilinear) {
  if (!bilinear) return {at / factor, at / factor, 0.0F};
  const double position = (static_cast<double>(at) + 0.5) / static_cast<double>(factor) - 0.5;
  const auto floor = static_cast<int64_t>(std::floor(position));
  return {std::max<int64_t>(floor, 0), std::min(floor + 1, size - 1),
          static_cast<float>(position - static_cast<double>(floor))};
}

// The weight with which the output position of `taps` reads input position `from`.
float weight_on(const Taps& taps, int64_t from) {
  return (taps.low == from ? 1.0F - taps.weight : 0.0F) + (taps.high == from ? taps.weight : 0.0F);
}

struct Upsampling {
  int64_t h, w, c, fh, fw;  // size of the small image; scale factors
  bool bilinear;
};

void forward_row(const Upsampling& u, const float* x, float* y, int64_t row) {
  const int64_t image = row / (u.h * u.fh);
  const Taps rows = taps_of(row % (u.h * u.fh), u.fh, u.h, u.bilinear);
  const float* upper = x + (image * u.h + rows.low) * u.w * u.c;
  const float* lower = x + (image * u.h + rows.high) * u.w * u.c;
  for (int64_t ox = 0; ox < u.w * u.fw; ++ox) {
    const Taps columns = taps_of(ox, u.fw, u.w, u.bilinear);
    float* to = y + (row * u.w * u.fw + ox) * u.c;
    if (!u.bilinear) {
      std::copy_n(upper + columns.low * u.c, u.c, to);
      continue;
    }
    const float a = (1 - rows.weight) * (1 - columns.weight), b = (1 - rows.weight) * columns.weight;
    const float d = rows.weight * (1 - columns.weight), e = rows.weight * columns.weight;
    const float *ul = upper + columns.low * u.c, *ur = upper + columns.high * u.c;
    const float *ll = lower + columns.low * u.c, *lr = lower + columns.high * u.c;
    for (int64_t i = 0; i < u.c; ++i) to[i] = a * ul[i] + b * ur[i] + (d * ll[i] + e * lr[i]);
  }
}

void backward_row(const Upsampling& u, const float* dy, float* dx, int64_t row) {
  const int64_t image = row / u.h, iy = row % u.h, oh = u.h * u.fh, ow = u.w * u.fw, reach = u.bilinear ? 1 : 0;
  for (int64_t ix = 0; ix < u.w; ++ix) {
    float* to = dx + (row * u.w + ix) * u.c;
    std::fill_n(to, u.c, 0.0F);
    for (int64_t oy = std::max<int64_t>(0, (iy - reach) * u.fh); oy < std::min(oh, (iy + 1 + reach) * u.fh); ++oy) {
      const float down = weight_on(taps_of(oy, u.fh, u.h, u.bilinear), iy);
      if (down == 0) continue;
      for (int64_t ox = std::max<int64_t>(0, (ix - reach) * u.fw); ox < std::min(ow, (ix + 1 + reach) * u.fw); ++ox) {
        const float weight = down * weight_on(taps_of(ox, u.fw, u.w, u.bilinear), ix);
        const float* from = dy + ((image * oh + oy) * ow + ox) * u.c;
        if (weight == 0) continue;
        for (int64_t i = 0; i < u.c; ++i) to[i] += weight * from[i];
      }
    }
  }
}

}  // namespace

Result<Recipe> image_recipe(const Problem& p) {
  const bool grad = p.node.op == "upsample2d_grad";
  const Shape& small = grad ? p.out_shape(0) : p.in_shape(0);
  const auto& size = p.attrs().list("size");
  const Upsampling u{small[1], small[2], small[3], size[0], size[1], p.attrs().text("interpolation") == "bilinear"};
  const int64_t rows = p.out_shape(0)[0] * p.out_shape(0)[1], width = p.out_shape(0)[2] * u.c;
  const int threads = p.machine.threads;
  return own_recipe(p.node.op, 0, p.machine.seconds(0, 1, 2 * p.traffic()), [=](const BoundNode& node) {
    return [=, from = input<const float>(node, 0), to = output<float>(node, 0)] {
      parallel_ranges(threads, rows, 1 + kGrain / width, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) grad ? backward_row(u, from, to, r) : forward_row(u, from, to, r);
      });
    };
  });
}

}  // namespace plimsoll::engine::cpu
