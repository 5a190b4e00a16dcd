// Convolutions and pooling.
#include <array>
#include <cmath>
#include <cstring>

#include "base/checked.h"
#include "shrink/lite/dot.h"
#include "shrink/lite/fixed_point.h"
#include "shrink/lite/kernels.h"

namespace plimsoll::engine::lite {
namespace {

constexpr Bytes kMostScratch = int64_t{1} << 33;

// One sample's image, the window over it, and the image that comes out.
struct Window {
  int64_t samples = 1, h = 0, w = 0, c = 0, oh = 0, ow = 0, kh = 1, kw = 1, sh = 1, sw = 1, dh = 1, dw = 1, top = 0,
          left = 0;
};

Result<Window> read_window(const Prepare& p, const Tensor& image, int64_t kh, int64_t kw) {
  if (image.shape.size() != 4) return fail(bad_operator(p, "its input is not an image"));
  const Options& o = p.options();
  Window g{image.shape[0], image.shape[1], image.shape[2], image.shape[3], 0, 0, kh, kw,
           o.stride[0],    o.stride[1],    o.dilation[0],  o.dilation[1]};
  const auto place = [&](int64_t in, int64_t k, int64_t s, int64_t d, int64_t& out, int64_t& before) {
    const int64_t extent = (k - 1) * d + 1;
    if (o.padding == Padding::kValid) {
      out = (in - extent) / s + 1;
      return in >= extent;
    }
    out = (in + s - 1) / s;
    before = std::max<int64_t>((out - 1) * s + extent - in, 0) / 2;
    return true;
  };
  if (!place(g.h, kh, g.sh, g.dh, g.oh, g.top) || !place(g.w, kw, g.sw, g.dw, g.ow, g.left))
    return fail(bad_operator(p, "its window is larger than the image"));
  return g;
}

// Copies what the window sees at an output row, one row of `kh * kw * count` elements per output pixel. `first` and
// `count` choose channels.
template <typename From, typename To, typename Convert>
void gather_patches(const Window& g, const From* image, int64_t y, int64_t first, int64_t count, To pad, To* patches,
                    const Convert& convert) {
  for (int64_t x = 0; x < g.ow; ++x)
    for (int64_t ky = 0; ky < g.kh; ++ky) {
      const int64_t iy = y * g.sh - g.top + ky * g.dh;
      for (int64_t kx = 0; kx < g.kw; ++kx, patches += count) {
        const int64_t ix = x * g.sw - g.left + kx * g.dw;
        if (iy < 0 || iy >= g.h || ix < 0 || ix >= g.w) {
          std::fill_n(patches, count, pad);
          continue;
        }
        const From* from = image + (iy * g.w + ix) * g.c + first;
        for (int64_t c = 0; c < count; ++c) patches[c] = convert(from[c]);
      }
    }
}

struct Requantize {
  std::vector<Multiplier> multipliers;
  int32_t zero = 0;
  Clamp clamp;

  int8_t operator()(int32_t sum, size_t channel) const {
    return clamp(int64_t{multiply(sum, multipliers[channel])} + zero);
  }
};

// Of sums of products of an int8 input and per-channel int8 weights.
Result<Requantize> requantize_of(const Prepare& p, const Tensor& x, const Tensor& w, int64_t channels, int32_t axis) {
  const Quantization& q = w.quantization;
  if (w.type != Type::kInt8 || q.empty() ||
      (q.scales.size() != 1 && (q.axis != axis || static_cast<int64_t>(q.scales.size()) != channels)))
    return fail(not_supported(p, "its weights are not int8 with a scale per channel"));
  for (const int64_t zero : q.zeros)
    if (zero != 0) return fail(not_supported(p, "its weights have a zero point"));
  Requantize r;
  const Quantization& out = p.out().quantization;
  for (int64_t c = 0; c < channels; ++c) {
    const double scale = q.scales.size() == 1 ? q.scales[0] : q.scales[static_cast<size_t>(c)];
    r.multipliers.push_back(multiplier_of(double{x.quantization.scale()} * scale / double{out.scale()}));
  }
  r.zero = out.zero();
  r.clamp = clamp_of(p.options().activation, out);
  return r;
}

Status check_bias(const Prepare& p, size_t input, int64_t channels, Type type) {
  if (!p.has(input)) return {};
  if (p.in(input).type != type || p.in(input).elements() != channels)
    return fail(bad_operator(p, "its bias does not fit"));
  return {};
}

// A constant tensor, which a kernel packs when it is made.
Status need_constant(const Prepare& p, size_t input) {
  return p.in(input).constant() ? Status() : fail(not_supported(p, fmt::format("input {} is computed", input)));
}

Result<Kernel> convolution(Prepare& p) {
  PLIMSOLL_TRY(need_inputs(p, 2, 3));
  PLIMSOLL_TRY(need_constant(p, 1));
  const Tensor &x = p.in(0), &w = p.in(1);
  if (w.shape.size() != 4) return fail(bad_operator(p, "its kernel does not have four dimensions"));
  PLIMSOLL_ASSIGN(const Window g, read_window(p, x, w.shape[1], w.shape[2]));
  const int64_t filters = w.shape[0], inner = w.shape[3], k = g.kh * g.kw * inner;
  if (g.c % inner != 0 || filters % (g.c / inner) != 0) return fail(bad_operator(p, "its kernel has other channels"));
  PLIMSOLL_TRY(need_shape(p, {g.samples, g.oh, g.ow, filters}));
  const int64_t groups = g.c / inner, per = filters / groups;
  const int32_t xi = p.at(0), yi = p.out_at(), bi = p.has(2) ? p.at(2) : -1;
  const bool plain = g.kh == 1 && g.kw == 1 && g.sh == 1 && g.sw == 1 && groups == 1;
  const auto row_bytes = checked_multiply(g.ow, k);
  if (!row_bytes || *row_bytes > kMostScratch) return fail(not_supported(p, "it is too large"));
  if (p.floats() && (w.type == Type::kFloat32 || w.type == Type::kInt8)) {
    PLIMSOLL_TRY(check_bias(p, 2, filters, Type::kFloat32));
    auto packed = std::make_shared<std::vector<float>>(static_cast<size_t>(w.elements()));
    p.packed = w.elements() * 4;
    const bool int8 = w.type == Type::kInt8;  // weights alone are quantized
    if (int8 && w.quantization.empty()) return fail(not_supported(p, "its weights have no scale"));
    for (int64_t o = 0; o < filters; ++o)  // per group: [k, filters of the group]
      for (int64_t i = 0; i < k; ++i) {
        const auto from = static_cast<size_t>(o * k + i);
        const auto& s = w.quantization.scales;
        (*packed)[static_cast<size_t>((o / per) * k * per + i * per + o % per)] =
            int8 ? static_cast<float>(w.as<int8_t>()[from]) * s[s.size() == 1 ? 0 : static_cast<size_t>(o)]
                 : w.as<float>()[from];
      }
    p.scratch = g.ow * (k + per) * 4;
    const Activation activation = p.options().activation;
    return Kernel([=](const Buffers& b) {
      const float *in = b.as<float>(xi), *bias = bi < 0 ? nullptr : b.as<float>(bi);
      float *out = b.as<float>(yi), *patches = reinterpret_cast<float*>(b.room), *made = patches + g.ow * k;
      for (int64_t s = 0; s < g.samples; ++s)
        for (int64_t y = 0; y < g.oh; ++y)
          for (int64_t group = 0; group < groups; ++group) {
            const float* image = in + s * g.h * g.w * g.c;
            const float* rows = plain ? image + y * g.w * g.c : patches;
            if (!plain) gather_patches(g, image, y, group * inner, inner, 0.0F, patches, [](float v) { return v; });
            multiply_rows(rows, g.ow, packed->data() + group * k * per, bias == nullptr ? nullptr : bias + group * per,
                          per, k, made);
            float* to = out + ((s * g.oh + y) * g.ow) * filters + group * per;
            for (int64_t i = 0; i < g.ow; ++i)
              for (int64_t o = 0; o < per; ++o) to[i * filters + o] = activated(made[i * per + o], activation);
          }
    });
  }
  if (!p.int8() || p.options().activation == Activation::kTanh)
    return fail(not_supported(p, fmt::format("type {}", name_of(x.type))));
  if (k > kMostProducts) return fail(not_supported(p, "it adds too many products for int32"));
  PLIMSOLL_TRY(check_bias(p, 2, filters, Type::kInt32));
  PLIMSOLL_ASSIGN(const Requantize requantize, requantize_of(p, x, w, filters, 0));
  // x - zero = (x + 128) - (zero + 128): the second part is a constant per filter.
  const int32_t shift = x.quantization.zero() + 128;
  std::vector<int32_t> constant(static_cast<size_t>(filters));
  for (int64_t o = 0; o < filters; ++o)
    for (int64_t i = 0; i < k; ++i)
      constant[static_cast<size_t>(o)] -= shift * w.as<int8_t>()[static_cast<size_t>(o * k + i)];
  p.scratch = (g.ow * k + 63) / 64 * 64 + g.ow * per * 4;
  auto weights = std::make_shared<std::vector<IntegerWeights>>();
  for (int64_t group = 0; group < groups; ++group) {
    weights->emplace_back(w.as<int8_t>().data() + group * per * k, per, k);
    p.packed += weights->back().bytes();
  }
  return Kernel([=](const Buffers& b) {
    const int8_t* in = b.as<int8_t>(xi);
    const int32_t* bias = bi < 0 ? nullptr : b.as<int32_t>(bi);
    auto* patches = reinterpret_cast<uint8_t*>(b.room);
    auto* sums = reinterpret_cast<int32_t*>(patches + (g.ow * k + 63) / 64 * 64);
    const auto widen = [](int8_t v) { return static_cast<uint8_t>(v + 128); };
    for (int64_t s = 0; s < g.samples; ++s)
      for (int64_t y = 0; y < g.oh; ++y)
        for (int64_t group = 0; group < groups; ++group) {
          gather_patches(g, in + s * g.h * g.w * g.c, y, group * inner, inner, static_cast<uint8_t>(shift), patches,
                         widen);
          (*weights)[static_cast<size_t>(group)].multiply(patches, g.ow, sums);
          int8_t* to = b.as<int8_t>(yi) + ((s * g.oh + y) * g.ow) * filters + group * per;
          for (int64_t i = 0; i < g.ow; ++i)
            for (int64_t o = 0; o < per; ++o) {
              const auto channel = static_cast<size_t>(group * per + o);
              const int64_t sum =
                  int64_t{sums[i * per + o]} + constant[channel] + (bias == nullptr ? 0 : bias[channel]);
              to[i * filters + o] = requantize(saturated(sum), channel);
            }
        }
  });
}

Result<Kernel> depthwise(Prepare& p) {
  PLIMSOLL_TRY(need_inputs(p, 2, 3));
  PLIMSOLL_TRY(need_constant(p, 1));
  const Tensor &x = p.in(0), &w = p.in(1);
  if (w.shape.size() != 4 || w.shape[0] != 1) return fail(bad_operator(p, "its kernel has another shape"));
  PLIMSOLL_ASSIGN(const Window g, read_window(p, x, w.shape[1], w.shape[2]));
  const int64_t filters = w.shape[3];
  if (filters % g.c != 0) return fail(bad_operator(p, "its kernel has other channels"));
  const int64_t multiplier = filters / g.c;
  PLIMSOLL_TRY(need_shape(p, {g.samples, g.oh, g.ow, filters}));
  const int32_t xi = p.at(0), yi = p.out_at(), bi = p.has(2) ? p.at(2) : -1;
  // The channels that an output channel reads: repeated, if there is a multiplier.
  const auto visit = [g](int64_t y, int64_t px, const auto& tap) {
    for (int64_t ky = 0; ky < g.kh; ++ky) {
      const int64_t iy = y * g.sh - g.top + ky * g.dh;
      if (iy < 0 || iy >= g.h) continue;
      for (int64_t kx = 0; kx < g.kw; ++kx) {
        const int64_t ix = px * g.sw - g.left + kx * g.dw;
        if (ix >= 0 && ix < g.w) tap((iy * g.w + ix) * g.c, (ky * g.kw + kx));
      }
    }
  };
  if (p.floats() && (w.type == Type::kFloat32 || w.type == Type::kInt8)) {
    PLIMSOLL_TRY(check_bias(p, 2, filters, Type::kFloat32));
    auto weights = std::make_shared<std::vector<float>>(static_cast<size_t>(w.elements()));
    p.packed = w.elements() * 4;
    const bool int8 = w.type == Type::kInt8;
    const auto& scales = w.quantization.scales;
    if (int8 && scales.empty()) return fail(not_supported(p, "its weights have no scale"));
    for (size_t i = 0; i < weights->size(); ++i)
      (*weights)[i] = int8 ? static_cast<float>(w.as<int8_t>()[i]) *
                                 scales[scales.size() == 1 ? 0 : i % static_cast<size_t>(filters)]
                           : w.as<float>()[i];
    p.scratch = filters * 4;
    const Activation activation = p.options().activation;
    return Kernel([=](const Buffers& b) {
      const float* bias = bi < 0 ? nullptr : b.as<float>(bi);
      float* repeated = reinterpret_cast<float*>(b.room);
      for (int64_t s = 0; s < g.samples; ++s)
        for (int64_t y = 0; y < g.oh; ++y)
          for (int64_t px = 0; px < g.ow; ++px) {
            float* to = b.as<float>(yi) + ((s * g.oh + y) * g.ow + px) * filters;
            std::fill_n(to, filters, 0.0F);
            const float* image = b.as<float>(xi) + s * g.h * g.w * g.c;
            visit(y, px, [&](int64_t at, int64_t tap) {
              const float* from = image + at;
              if (multiplier > 1) {
                for (int64_t c = 0; c < filters; ++c) repeated[c] = from[c / multiplier];
                from = repeated;
              }
              multiply_add(from, weights->data() + tap * filters, filters, to);
            });
            for (int64_t c = 0; c < filters; ++c)
              to[c] = activated(to[c] + (bias == nullptr ? 0.0F : bias[c]), activation);
          }
    });
  }
  if (!p.int8() || p.options().activation == Activation::kTanh)
    return fail(not_supported(p, fmt::format("type {}", name_of(x.type))));
  if (g.kh * g.kw > kMostProducts) return fail(not_supported(p, "it adds too many products for int32"));
  PLIMSOLL_TRY(check_bias(p, 2, filters, Type::kInt32));
  PLIMSOLL_ASSIGN(const Requantize requantize, requantize_of(p, x, w, filters, 3));
  auto weights = std::make_shared<std::vector<int16_t>>(w.as<int8_t>().begin(), w.as<int8_t>().end());
  p.packed = w.elements() * 2;
  p.scratch = (filters * 2 + 63) / 64 * 64 + filters * 4;
  const int32_t zero = x.quantization.zero();
  return Kernel([=](const Buffers& b) {
    const int32_t* bias = bi < 0 ? nullptr : b.as<int32_t>(bi);
    auto* wide = reinterpret_cast<int16_t*>(b.room);
    auto* sums = reinterpret_cast<int32_t*>(reinterpret_cast<std::byte*>(wide) + (filters * 2 + 63) / 64 * 64);
    for (int64_t s = 0; s < g.samples; ++s)
      for (int64_t y = 0; y < g.oh; ++y)
        for (int64_t px = 0; px < g.ow; ++px) {
          std::fill_n(sums, filters, 0);
          const int8_t* image = b.as<int8_t>(xi) + s * g.h * g.w * g.c;
          visit(y, px, [&](int64_t at, int64_t tap) {
            const int8_t* from = image + at;
            if (multiplier == 1)
              for (int64_t c = 0; c < filters; ++c) wide[c] = static_cast<int16_t>(from[c] - zero);
            else
              for (int64_t c = 0; c < filters; ++c) wide[c] = static_cast<int16_t>(from[c / multiplier] - zero);
            multiply_add(wide, weights->data() + tap * filters, filters, sums);
          });
          int8_t* to = b.as<int8_t>(yi) + ((s * g.oh + y) * g.ow + px) * filters;
          for (int64_t c = 0; c < filters; ++c)
            to[c] = requantize(saturated(int64_t{sums[c]} + (bias == nullptr ? 0 : bias[c])), static_cast<size_t>(c));
        }
  });
}

// The taps of a window that lie inside the image.
template <typename Visit>
int64_t visit_window(const Window& g, int64_t y, int64_t x, const Visit& visit) {
  const int64_t y0 = std::max<int64_t>(0, y * g.sh - g.top), y1 = std::min(g.h, y * g.sh - g.top + g.kh);
  const int64_t x0 = std::max<int64_t>(0, x * g.sw - g.left), x1 = std::min(g.w, x * g.sw - g.left + g.kw);
  for (int64_t iy = y0; iy < y1; ++iy)
    for (int64_t ix = x0; ix < x1; ++ix) visit((iy * g.w + ix) * g.c);
  return (y1 - y0) * (x1 - x0);
}

template <typename T, typename Sum, bool max, typename Finish>
Kernel pool_kernel(const Window& g, int32_t xi, int32_t yi, const Finish& finish) {
  return [=](const Buffers& b) {
    auto* sums = reinterpret_cast<Sum*>(b.room);
    for (int64_t s = 0; s < g.samples; ++s)
      for (int64_t y = 0; y < g.oh; ++y)
        for (int64_t x = 0; x < g.ow; ++x) {
          std::fill_n(sums, g.c, max ? std::numeric_limits<Sum>::lowest() : Sum(0));
          const T* image = b.as<T>(xi) + s * g.h * g.w * g.c;
          const int64_t count = visit_window(g, y, x, [&](int64_t at) {
            for (int64_t c = 0; c < g.c; ++c)
              sums[c] = max ? std::max<Sum>(sums[c], image[at + c]) : static_cast<Sum>(sums[c] + image[at + c]);
          });
          T* to = b.as<T>(yi) + ((s * g.oh + y) * g.ow + x) * g.c;
          for (int64_t c = 0; c < g.c; ++c) to[c] = finish(sums[c], count);
        }
  };
}

template <bool max>
Result<Kernel> pooling(Prepare& p) {
  PLIMSOLL_TRY(need_inputs(p, 1, 1));
  PLIMSOLL_ASSIGN(const Window g, read_window(p, p.in(0), p.options().filter[0], p.options().filter[1]));
  PLIMSOLL_TRY(need_shape(p, {g.samples, g.oh, g.ow, g.c}));
  p.scratch = g.c * 4;
  const int32_t xi = p.at(0), yi = p.out_at();
  const Activation activation = p.options().activation;
  if (p.floats())
    return pool_kernel<float, float, max>(g, xi, yi, [=](float sum, int64_t count) {
      return activated(max ? sum : sum / static_cast<float>(count), activation);
    });
  if (!p.int8()) return fail(not_supported(p, fmt::format("type {}", name_of(p.in(0).type))));
  if (p.in(0).quantization.scale() != p.out().quantization.scale() ||
      p.in(0).quantization.zero() != p.out().quantization.zero())
    return fail(not_supported(p, "its input and its output have different scales"));
  if (g.kh * g.kw > kMostProducts * 100) return fail(not_supported(p, "its window is too large"));
  const Clamp clamp = clamp_of(activation, p.out().quantization);
  return pool_kernel<int8_t, int32_t, max>(g, xi, yi, [=](int32_t sum, int64_t count) {
    if (max) return clamp(sum);
    const auto n = static_cast<int32_t>(count);
    return clamp(sum > 0 ? (sum + n / 2) / n : (sum - n / 2) / n);  // half away from zero
  });
}

Result<Kernel> transposed(Prepare& p) {
  PLIMSOLL_TRY(need_inputs(p, 3, 4));
  PLIMSOLL_TRY(need_constant(p, 1));
  const Tensor &w = p.in(1), &x = p.in(2);
  if (p.out().type != Type::kFloat32 || x.type != Type::kFloat32 || w.type != Type::kFloat32)
    return fail(not_supported(p, "integers"));
  if (w.shape.size() != 4 || x.shape.size() != 4 || p.out().shape.size() != 4 || w.shape[3] != x.shape[3] ||
      w.shape[0] != p.out().shape[3] || x.shape[0] != p.out().shape[0])
    return fail(bad_operator(p, "its shapes do not fit"));
  PLIMSOLL_TRY(check_bias(p, 3, w.shape[0], Type::kFloat32));
  // The convolution whose gradient it is goes from the output to the input.
  PLIMSOLL_ASSIGN(const Window g, read_window(p, p.out(), w.shape[1], w.shape[2]));
  const bool valid = p.options().padding == Padding::kValid;
  if (valid ? g.oh < x.shape[1] || g.ow < x.shape[2] : g.oh != x.shape[1] || g.ow != x.shape[2])
    return fail(bad_operator(p, "its output has another size"));
  const int64_t h = x.shape[1], width = x.shape[2], in = x.shape[3], out = w.shape[0];
  const int32_t xi = p.at(2), wi = p.at(1), yi = p.out_at(), bi = p.has(3) ? p.at(3) : -1;
  const int64_t all = p.out().elements();
  const Activation activation = p.options().activation;
  return Kernel([=](const Buffers& b) {
    const float *from = b.as<float>(xi), *weights = b.as<float>(wi), *bias = bi < 0 ? nullptr : b.as<float>(bi);
    float* to = b.as<float>(yi);
    for (int64_t i = 0; i < all; ++i) to[i] = bias == nullptr ? 0.0F : bias[i % out];
    for (int64_t s = 0; s < g.samples; ++s)
      for (int64_t y = 0; y < h; ++y)
        for (int64_t px = 0; px < width; ++px)
          for (int64_t ky = 0; ky < g.kh; ++ky)
            for (int64_t kx = 0; kx < g.kw; ++kx) {
              const int64_t oy = y * g.sh - g.top + ky, ox = px * g.sw - g.left + kx;
              if (oy < 0 || oy >= g.h || ox < 0 || ox >= g.w) continue;
              const float* row = from + ((s * h + y) * width + px) * in;
              for (int64_t o = 0; o < out; ++o) {
                const float* kernel = weights + ((o * g.kh + ky) * g.kw + kx) * in;
                float sum = 0;
                for (int64_t i = 0; i < in; ++i) sum += row[i] * kernel[i];
                to[((s * g.h + oy) * g.w + ox) * out + o] += sum;
              }
            }
    if (activation != Activation::kNone)
      for (int64_t i = 0; i < all; ++i) to[i] = activated(to[i], activation);
  });
}

constexpr std::array kKernels = {
    KernelRow{Op::kConv, convolution},         KernelRow{Op::kDepthwiseConv, depthwise},
    KernelRow{Op::kMaxPool, pooling<true>},    KernelRow{Op::kAveragePool, pooling<false>},
    KernelRow{Op::kTransposeConv, transposed},
};

}  // namespace

std::span<const KernelRow> window_kernels() {
  return kKernels;
}

}  // namespace plimsoll::engine::lite
