// Adds up the partial weight gradients of split-K.
#pragma once

#include "backends/cuda/common/numbers.cuh"
#include "backends/cuda/convolution/launch.h"

namespace plimsoll::engine::cuda {

inline constexpr int kSumLanes = 32;  // threads that share the parts of one weight

// `sums` holds the weights of each part, indexed (tap, channel, output channel). Neighbouring threads add neighbouring
// weights.
template <typename T>
__global__ void add_weight_parts(DirectConvolution s, const float* sums, int64_t parts, T* dw) {
  __shared__ float shared[kSumLanes][kSumLanes];
  const int cg = s.c / s.groups;
  const int64_t weights = static_cast<int64_t>(s.kd) * s.kh * s.kw * cg * s.o;
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kSumLanes + threadIdx.x;
  float sum = 0;
  if (item < weights)
    for (int64_t part = threadIdx.y; part < parts; part += kSumLanes) sum += sums[part * weights + item];
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || item >= weights) return;
  for (int lane = 1; lane < kSumLanes; ++lane) sum += shared[lane][threadIdx.x];
  const int64_t o = item % s.o, k = item / s.o % cg, tap = item / s.o / cg;
  dw[tap * s.tap_stride + k * s.channel_stride + o * s.output_stride] = from_float<T>(sum);
}

template <typename T>
void sum_weight_parts(cudaStream_t stream, const DirectConvolution& conv, const float* sums, int64_t parts, T* dw) {
  const int64_t weights = static_cast<int64_t>(conv.kd) * conv.kh * conv.kw * (conv.c / conv.groups) * conv.o;
  const auto blocks = static_cast<unsigned>((weights + kSumLanes - 1) / kSumLanes);
  add_weight_parts<T><<<blocks, dim3(kSumLanes, kSumLanes), 0, stream>>>(conv, sums, parts, dw);
}

}  // namespace plimsoll::engine::cuda
