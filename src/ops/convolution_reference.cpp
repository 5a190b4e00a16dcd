// Convolutions and their gradients in float64, as products with rows that are gathered from the image.
#include <functional>
#include <numeric>

#include "ops/convolution.h"
#include "ops/families.h"
#include "ops/gemm.h"
#include "ops/window.h"

namespace plimsoll::engine {
namespace {

// The sizes of one convolution, for any of the three tensors to compute.
struct Conv {
  WindowGeometry g;
  int64_t n, c, o, groups, cg, og;  // cg, og: channels per group

  Conv(const Shape& x, const Shape& w, const Attrs& attrs)
      : g(window_geometry(&w.dims[0], &x.dims[1], attrs)),
        n(x[0]),
        c(x.back()),
        o(w.back()),
        groups(attrs.integer("groups")),
        cg(c / groups),
        og(o / groups) {}

  int64_t taps() const { return g.window_elements(); }
  int64_t input_pixels() const { return n * pixels(g.input); }
  int64_t output_pixels() const { return n * pixels(g.output); }
  int64_t pixels(const WindowGeometry::Sizes& sizes) const {
    return std::accumulate(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(g.rank), int64_t{1},
                           std::multiplies<>());
  }
  bool depthwise() const { return cg == 1 && og == 1; }

  // Returns the pixel of x under a tap of an output pixel, or -1 in the padding.
  int64_t input_under(int64_t output_pixel, int64_t tap) const { return under(g.rank, output_pixel, tap); }
  // The same for rows: all dimensions but the last.
  int64_t input_row_under(int64_t output_row, int64_t tap) const { return under(g.rank - 1, output_row, tap); }
  // Returns the output pixel that reads an input pixel through a tap, or -1.
  int64_t output_over(int64_t input_pixel, int64_t tap) const {
    int64_t pixel = 0, scale = 1;
    for (size_t axis = g.rank; axis-- > 0;) {
      const int64_t scaled = input_pixel % g.input[axis] + g.before[axis] - tap % g.kernel[axis] * g.dilations[axis];
      if (scaled < 0 || scaled % g.strides[axis] != 0 || scaled / g.strides[axis] >= g.output[axis]) return -1;
      input_pixel /= g.input[axis];
      tap /= g.kernel[axis];
      pixel += scaled / g.strides[axis] * scale;
      scale *= g.output[axis];
    }
    return input_pixel * scale + pixel;
  }

 private:
  int64_t under(size_t dimensions, int64_t at, int64_t tap) const {
    int64_t result = 0, scale = 1;
    for (size_t axis = dimensions; axis-- > 0;) {
      const int64_t source = g.source(axis, at % g.output[axis], tap % g.kernel[axis]);
      if (source < 0) return -1;
      at /= g.output[axis];
      tap /= g.kernel[axis];
      result += source * scale;
      scale *= g.input[axis];
    }
    return at * scale + result;
  }
};

// Packs rows, one per pixel: column (tap, channel) of row p is data[pixel(p, tap), channel].
template <typename PixelAt>
GemmPackA pixel_rows(const double* data, int64_t stride, int64_t channels, PixelAt pixel_at) {
  return [=](int64_t row, int64_t rows, int64_t k0, int64_t k1, double* a) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t k = k0; k < k1;) {
        const int64_t tap = k / channels, channel = k % channels;
        const int64_t run = std::min(k1 - k, channels - channel);
        const int64_t pixel = pixel_at(row + r, tap);
        double* to = a + (k - k0) * kGemmRows + r;
        for (int64_t i = 0; i < run; ++i) to[i * kGemmRows] = pixel < 0 ? 0.0 : data[pixel * stride + channel + i];
        k += run;
      }
  };
}

// Packs the values of x's channel c under a tap, for output pixels k0 to k1. Pixels of one output row share the row of
// x.
void pack_weight_row(const Conv& conv, const double* x, int64_t tap, int64_t c, int64_t k0, int64_t k1, double* a) {
  const WindowGeometry& g = conv.g;
  const size_t last = g.rank - 1;
  const int64_t width = g.output[last], column_tap = tap % g.kernel[last];
  for (int64_t p = k0; p < k1;) {
    const int64_t column = p % width, run = std::min(k1 - p, width - column);
    const int64_t row = conv.input_row_under(p / width, tap / g.kernel[last]);
    for (int64_t i = 0; i < run; ++i) {
      const int64_t w = row < 0 ? -1 : g.source(last, column + i, column_tap);
      a[(p - k0 + i) * kGemmRows] = w < 0 ? 0.0 : x[(row * g.input[last] + w) * conv.c + c];
    }
    p += run;
  }
}

}  // namespace

void reference_convolution(const ReferenceCall& call) {
  const Conv conv(call.inputs[0].type.shape, call.inputs[1].type.shape, call.attrs);
  const double *x = in(call, 0), *w = in(call, 1);
  double* y = out(call);
  if (conv.depthwise()) {
    for_each(conv.output_pixels(), conv.taps() * conv.c, [&](int64_t p) {
      std::fill(y + p * conv.o, y + (p + 1) * conv.o, 0.0);
      for (int64_t tap = 0; tap < conv.taps(); ++tap)
        if (const int64_t from = conv.input_under(p, tap); from >= 0)
          for (int64_t c = 0; c < conv.c; ++c) y[p * conv.o + c] += x[from * conv.c + c] * w[tap * conv.o + c];
    });
  } else {
    for (int64_t g = 0; g < conv.groups; ++g)
      gemm(conv.output_pixels(), conv.og, conv.taps() * conv.cg,
           pixel_rows(x + g * conv.cg, conv.c, conv.cg,
                      [&](int64_t p, int64_t tap) { return conv.input_under(p, tap); }),
           {w + g * conv.og, conv.o, 1}, y + g * conv.og, conv.o);
  }
  finish_product(call, conv.output_pixels(), conv.o);
}

void reference_convolution_input_grad(const ReferenceCall& call) {
  const Conv conv(call.outputs[0].type.shape, call.inputs[1].type.shape, call.attrs);
  const double *dy = in(call, 0), *w = in(call, 1);
  double* dx = out(call);
  if (conv.depthwise()) {
    for_each(conv.input_pixels(), conv.taps() * conv.c, [&](int64_t p) {
      std::fill(dx + p * conv.c, dx + (p + 1) * conv.c, 0.0);
      for (int64_t tap = 0; tap < conv.taps(); ++tap)
        if (const int64_t from = conv.output_over(p, tap); from >= 0)
          for (int64_t c = 0; c < conv.c; ++c) dx[p * conv.c + c] += dy[from * conv.o + c] * w[tap * conv.o + c];
    });
    return;
  }
  for (int64_t g = 0; g < conv.groups; ++g)  // row (tap, o), column c of B is w[tap, c, o]
    gemm(
        conv.input_pixels(), conv.cg, conv.taps() * conv.og,
        pixel_rows(dy + g * conv.og, conv.o, conv.og, [&](int64_t p, int64_t tap) { return conv.output_over(p, tap); }),
        {w + g * conv.og, 1, conv.o, conv.og, conv.cg * conv.o}, dx + g * conv.cg, conv.c);
}

void reference_convolution_weight_grad(const ReferenceCall& call) {
  const Conv conv(call.inputs[0].type.shape, call.outputs[0].type.shape, call.attrs);
  const double *x = in(call, 0), *dy = in(call, 1);
  double* dw = out(call);
  if (call.outputs.size() == 2)
    sum_channels(out(call, 1), conv.output_pixels(), conv.o, [&](int64_t i, int64_t) { return dy[i]; });
  if (conv.depthwise()) {
    for_each(conv.taps(), conv.output_pixels() * conv.c, [&](int64_t tap) {
      std::fill(dw + tap * conv.o, dw + (tap + 1) * conv.o, 0.0);
      for (int64_t p = 0; p < conv.output_pixels(); ++p)
        if (const int64_t from = conv.input_under(p, tap); from >= 0)
          for (int64_t c = 0; c < conv.c; ++c) dw[tap * conv.o + c] += x[from * conv.c + c] * dy[p * conv.o + c];
    });
    return;
  }
  for (int64_t g = 0; g < conv.groups; ++g) {
    const auto pack = [&](int64_t row, int64_t rows, int64_t k0, int64_t k1, double* a) {
      for (int64_t r = 0; r < rows; ++r)
        pack_weight_row(conv, x + g * conv.cg, (row + r) / conv.cg, (row + r) % conv.cg, k0, k1, a + r);
    };
    gemm(conv.taps() * conv.cg, conv.og, conv.output_pixels(), pack, {dy + g * conv.og, conv.o, 1}, dw + g * conv.og,
         conv.o);
  }
}

}  // namespace plimsoll::engine
