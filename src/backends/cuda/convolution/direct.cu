// Direct convolutions, for depthwise kernels and for shapes that cuDNN has no engine for. Computes the forward pass
// (with optional bias and relu), the input gradient and the weight gradient for any strides, dilations, padding and
// groups. Activations are N(D)HWC; the weight layout is given by strides. Each thread computes one element;
// neighbouring threads compute neighbouring channels, so reads of activations are coalesced.
#include <algorithm>

#include "backends/cuda/common/numbers.cuh"
#include "backends/cuda/convolution/launch.h"
#include "backends/cuda/convolution/sum_parts.cuh"

namespace plimsoll::engine::cuda {
namespace {

constexpr int kThreads = 256;

__device__ inline int64_t thread_index() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

unsigned blocks_for(int64_t items) {
  return static_cast<unsigned>((items + kThreads - 1) / kThreads);
}

template <typename T>
__global__ void forward(DirectConvolution s, const T* x, const T* w, const T* bias, bool relu, T* y) {
  const int64_t item = thread_index();
  if (item >= static_cast<int64_t>(s.n) * s.od * s.oh * s.ow * s.o) return;
  const int o = static_cast<int>(item % s.o);
  const int64_t pixel = item / s.o;
  const int column = static_cast<int>(pixel % s.ow), row = static_cast<int>(pixel / s.ow % s.oh);
  const int64_t plane = pixel / s.ow / s.oh, sample = plane / s.od;
  const int depth = static_cast<int>(plane % s.od);
  const int cg = s.c / s.groups, first = o / (s.o / s.groups) * cg;
  float sum = 0;
  for (int line = 0; line < s.kd * s.kh; ++line) {
    const int from_plane = depth * s.sd - s.front + line / s.kh * s.dd;
    const int from_row = row * s.sh - s.top + line % s.kh * s.dh;
    if (from_plane < 0 || from_plane >= s.d || from_row < 0 || from_row >= s.h) continue;
    for (int j = 0; j < s.kw; ++j) {
      const int from_column = column * s.sw - s.left + j * s.dw;
      if (from_column < 0 || from_column >= s.w) continue;
      const T* from = x + (((sample * s.d + from_plane) * s.h + from_row) * s.w + from_column) * s.c + first;
      const T* weight = w + (line * s.kw + j) * s.tap_stride + o * s.output_stride;
      for (int k = 0; k < cg; ++k) sum += to_float(from[k]) * to_float(weight[k * s.channel_stride]);
    }
  }
  if (bias != nullptr) sum += to_float(bias[o]);
  y[item] = from_float<T>(relu && sum < 0 ? 0.0F : sum);
}

template <typename T>
__global__ void input_grad(DirectConvolution s, const T* dy, const T* w, T* dx) {
  const int64_t item = thread_index();
  if (item >= static_cast<int64_t>(s.n) * s.d * s.h * s.w * s.c) return;
  const int channel = static_cast<int>(item % s.c);
  const int64_t pixel = item / s.c;
  const int column = static_cast<int>(pixel % s.w), row = static_cast<int>(pixel / s.w % s.h);
  const int64_t plane = pixel / s.w / s.h, sample = plane / s.d;
  const int depth = static_cast<int>(plane % s.d);
  const int cg = s.c / s.groups, og = s.o / s.groups, first = channel / cg * og;
  float sum = 0;
  for (int line = 0; line < s.kd * s.kh; ++line) {
    const int scaled_plane = depth + s.front - line / s.kh * s.dd;
    if (scaled_plane < 0 || scaled_plane % s.sd != 0 || scaled_plane / s.sd >= s.od) continue;
    const int scaled_row = row + s.top - line % s.kh * s.dh;
    if (scaled_row < 0 || scaled_row % s.sh != 0 || scaled_row / s.sh >= s.oh) continue;
    for (int j = 0; j < s.kw; ++j) {
      const int scaled_column = column + s.left - j * s.dw;
      if (scaled_column < 0 || scaled_column % s.sw != 0 || scaled_column / s.sw >= s.ow) continue;
      const int64_t from_row = (sample * s.od + scaled_plane / s.sd) * s.oh + scaled_row / s.sh;
      const T* from = dy + (from_row * s.ow + scaled_column / s.sw) * s.o + first;
      const T* weight =
          w + (line * s.kw + j) * s.tap_stride + channel % cg * s.channel_stride + first * s.output_stride;
      for (int k = 0; k < og; ++k) sum += to_float(from[k]) * to_float(weight[k * s.output_stride]);
    }
  }
  dx[item] = from_float<T>(sum);
}

// Each thread computes one weight, indexed (tap, channel, output channel) with the output channel fastest. blockIdx.y
// selects one part of the pixels (split-K).
template <typename T, typename Out>
__global__ void weight_grad(DirectConvolution s, const T* x, const T* dy, Out* dw, int64_t parts) {
  const int cg = s.c / s.groups;
  const int64_t item = thread_index(), weights = static_cast<int64_t>(s.kd) * s.kh * s.kw * cg * s.o;
  if (item >= weights) return;
  const int o = static_cast<int>(item % s.o), k = static_cast<int>(item / s.o % cg);
  const int tap = static_cast<int>(item / s.o / cg), j = tap % s.kw, i = tap / s.kw % s.kh, p = tap / s.kw / s.kh;
  const int channel = o / (s.o / s.groups) * cg + k;
  const int64_t pixels = static_cast<int64_t>(s.n) * s.od * s.oh * s.ow, part = blockIdx.y;
  const int64_t end = pixels * (part + 1) / parts;
  float sum = 0;
  for (int64_t pixel = pixels * part / parts; pixel < end; ++pixel) {
    const int column = static_cast<int>(pixel % s.ow) * s.sw - s.left + j * s.dw;
    const int row = static_cast<int>(pixel / s.ow % s.oh) * s.sh - s.top + i * s.dh;
    const int64_t above = pixel / s.ow / s.oh;
    const int plane = static_cast<int>(above % s.od) * s.sd - s.front + p * s.dd;
    if (plane < 0 || plane >= s.d || row < 0 || row >= s.h || column < 0 || column >= s.w) continue;
    const int64_t from = ((above / s.od * s.d + plane) * s.h + row) * s.w + column;
    sum += to_float(x[from * s.c + channel]) * to_float(dy[pixel * s.o + o]);
  }
  // Several parts are stored in the order of the items. A single part is the result and is stored in the weight layout.
  const int64_t at =
      parts > 1 ? part * weights + item : tap * s.tap_stride + k * s.channel_stride + o * s.output_stride;
  dw[at] = from_float<Out>(sum);
}

}  // namespace

void direct_forward(cudaStream_t stream, DType dtype, const DirectConvolution& conv, const void* x, const void* w,
                    const void* bias, bool relu, void* y) {
  const int64_t items = static_cast<int64_t>(conv.n) * conv.od * conv.oh * conv.ow * conv.o;
  with_number(dtype, [&](auto zero) {
    using T = decltype(zero);
    forward<T><<<blocks_for(items), kThreads, 0, stream>>>(conv, static_cast<const T*>(x), static_cast<const T*>(w),
                                                           static_cast<const T*>(bias), relu, static_cast<T*>(y));
  });
}

void direct_input_grad(cudaStream_t stream, DType dtype, const DirectConvolution& conv, const void* dy, const void* w,
                       void* dx) {
  const int64_t items = static_cast<int64_t>(conv.n) * conv.d * conv.h * conv.w * conv.c;
  with_number(dtype, [&](auto zero) {
    using T = decltype(zero);
    input_grad<T><<<blocks_for(items), kThreads, 0, stream>>>(conv, static_cast<const T*>(dy), static_cast<const T*>(w),
                                                              static_cast<T*>(dx));
  });
}

void direct_weight_grad(cudaStream_t stream, DType dtype, const DirectConvolution& conv, const void* x, const void* dy,
                        void* dw, float* sums, int64_t parts) {
  const int64_t items = static_cast<int64_t>(conv.kd) * conv.kh * conv.kw * (conv.c / conv.groups) * conv.o;
  const dim3 grid(blocks_for(items), static_cast<unsigned>(parts));
  with_number(dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto *from = static_cast<const T*>(x), *gradient = static_cast<const T*>(dy);
    if (parts == 1) {
      weight_grad<T, T><<<grid, kThreads, 0, stream>>>(conv, from, gradient, static_cast<T*>(dw), 1);
      return;
    }
    weight_grad<T, float><<<grid, kThreads, 0, stream>>>(conv, from, gradient, sums, parts);
    sum_weight_parts(stream, conv, sums, parts, static_cast<T*>(dw));
  });
}

}  // namespace plimsoll::engine::cuda
