// Rearranges images and weights for space-to-depth convolutions (space_to_depth.h): 2 x 2 pixels become the channels of
// one pixel. Pixels outside the image and padding channels are zero. No arithmetic.
#include "backends/cuda/convolution/space_to_depth_launch.h"

#include "backends/cuda/common/device.cuh"

namespace plimsoll::engine::cuda {
namespace {

constexpr int kThreads = 256;

// Each thread writes 16 bytes of a space-to-depth pixel. Neighbouring threads read the same input, so most reads hit
// the L1 cache.
template <typename Bits>
__global__ void __launch_bounds__(kThreads) space_to_depth(SpaceToDepthShape s, Divider by_packs, Divider by_width,
                                                           const Bits* __restrict__ x, Bits* __restrict__ to) {
  constexpr int N = 16 / static_cast<int>(sizeof(Bits));
  const int64_t line = blockIdx.x;  // row over all space-to-depth images
  const int64_t image = line / s.fh;
  const int top = 2 * static_cast<int>(line % s.fh) - s.top;
  const int packs = s.channels / N;
  for (uint32_t item = threadIdx.x; item < static_cast<uint32_t>(s.fw * packs); item += kThreads) {
    uint32_t pack = item;
    const auto column = static_cast<int>(by_packs.split(pack));
    Pack<Bits, N> values;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      uint32_t channel = pack * N + static_cast<uint32_t>(k);
      const auto place = static_cast<int>(by_width.split(channel));  // channel / c: which of the four pixels
      const int row = top + place / 2, at = 2 * column - s.left + place % 2;
      const bool there = place < 4 && row >= 0 && row < s.h && at >= 0 && at < s.w;
      const Bits bits = __ldg(x + (there ? ((image * s.h + row) * s.w + at) * s.c + channel : 0));
      values.v[k] = there ? bits : Bits(0);
    }
    store_pack(to + (line * s.fw + column) * s.channels + pack * N, values);
  }
}

// The index of weight (o, i, j, channel) in the space-to-depth layout.
__device__ inline int64_t space_to_depth_place(const SpaceToDepthShape& s, int64_t o, int i, int j, int channel) {
  return ((o * s.fkh + i / 2) * s.fkw + j / 2) * s.channels + (i % 2 * 2 + j % 2) * s.c + channel;
}

template <typename Bits>
__global__ void space_to_depth_weights(SpaceToDepthShape s, int64_t elements, const Bits* w, Bits* to) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= elements) return;
  const auto inside = static_cast<int>(at % s.channels), place = inside / s.c, channel = inside % s.c;
  const int64_t tap = at / s.channels;
  const int i = 2 * static_cast<int>(tap / s.fkw % s.fkh) + place / 2,
            j = 2 * static_cast<int>(tap % s.fkw) + place % 2;
  const int64_t o = tap / (s.fkw * s.fkh);
  to[at] = place < 4 && i < s.kh && j < s.kw ? w[((o * s.kh + i) * s.kw + j) * s.c + channel] : Bits(0);
}

template <typename Bits>
__global__ void depth_to_space_weights(SpaceToDepthShape s, int64_t elements, const Bits* deep, Bits* w) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= elements) return;
  const auto channel = static_cast<int>(at % s.c), j = static_cast<int>(at / s.c % s.kw);
  const auto i = static_cast<int>(at / (s.c * s.kw) % s.kh);
  w[at] = deep[space_to_depth_place(s, at / (static_cast<int64_t>(s.c) * s.kw * s.kh), i, j, channel)];
}

// Calls f.operator()<Bits>() with an unsigned integer of the element's size, because the kernels only move bits.
template <typename F>
void with_bits(Element element, F f) {
  if (element == Element::kF32)
    f.template operator()<uint32_t>();
  else
    f.template operator()<uint16_t>();
}

}  // namespace

void launch_space_to_depth(const SpaceToDepthShape& s, Element element, const void* x, void* to, cudaStream_t stream) {
  with_bits(element, [&]<typename Bits>() {
    const int packs = s.channels / (16 / static_cast<int>(sizeof(Bits)));
    space_to_depth<<<static_cast<unsigned>(s.images * s.fh), kThreads, 0, stream>>>(
        s, Divider(packs), Divider(s.c), static_cast<const Bits*>(x), static_cast<Bits*>(to));
  });
}

void launch_space_to_depth_weights(const SpaceToDepthShape& s, Element element, const void* w, void* to,
                                   cudaStream_t stream) {
  const int64_t elements = static_cast<int64_t>(s.outputs) * s.fkh * s.fkw * s.channels;
  with_bits(element, [&]<typename Bits>() {
    space_to_depth_weights<<<blocks_for(elements, kThreads), kThreads, 0, stream>>>(
        s, elements, static_cast<const Bits*>(w), static_cast<Bits*>(to));
  });
}

void launch_depth_to_space_weights(const SpaceToDepthShape& s, Element element, const void* deep, void* w,
                                   cudaStream_t stream) {
  const int64_t elements = static_cast<int64_t>(s.outputs) * s.kh * s.kw * s.c;
  with_bits(element, [&]<typename Bits>() {
    depth_to_space_weights<<<blocks_for(elements, kThreads), kThreads, 0, stream>>>(
        s, elements, static_cast<const Bits*>(deep), static_cast<Bits*>(w));
  });
}

}  // namespace plimsoll::engine::cuda
