// Sums over rows, one per channel, and bias + relu in place. Both read a [rows, channels] tensor once.
#include <algorithm>

#include "backends/cuda/common/numbers.cuh"
#include "backends/cuda/convolution/launch.h"

namespace plimsoll::engine::cuda {
namespace {

constexpr int kLanes = 32, kRowsAtOnce = 8;

// Block (x, part) sums 32 channels over one part of the rows. The sums of a block's thread rows are added in a fixed
// order.
template <typename T, typename Out>
__global__ void sum_rows(const T* x, int64_t rows, int64_t channels, Out* out, int64_t parts) {
  __shared__ float shared[kRowsAtOnce][kLanes + 1];
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * kLanes + threadIdx.x;
  const int64_t part = blockIdx.y, begin = rows * part / parts, end = rows * (part + 1) / parts;
  float sum = 0;
  if (channel < channels)
    for (int64_t row = begin + threadIdx.y; row < end; row += kRowsAtOnce) sum += to_float(x[row * channels + channel]);
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || channel >= channels) return;
  for (int i = 1; i < kRowsAtOnce; ++i) sum += shared[i][threadIdx.x];
  out[part * channels + channel] = from_float<Out>(sum);
}

template <typename T>
__global__ void add_bias(T* y, int64_t elements, int64_t channels, const T* bias, bool relu) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < elements; i += step) {
    float v = to_float(y[i]);
    if (bias != nullptr) v += to_float(bias[i % channels]);
    y[i] = from_float<T>(relu && v < 0 ? 0.0F : v);
  }
}

}  // namespace

void channel_sum(cudaStream_t stream, DType dtype, const void* x, int64_t rows, int64_t channels, void* out,
                 float* sums, int64_t parts) {
  const dim3 block(kLanes, kRowsAtOnce);
  const auto blocks = static_cast<unsigned>((channels + kLanes - 1) / kLanes);
  with_number(dtype, [&](auto zero) {
    using T = decltype(zero);
    if (parts == 1) {
      sum_rows<T, T>
          <<<dim3(blocks, 1), block, 0, stream>>>(static_cast<const T*>(x), rows, channels, static_cast<T*>(out), 1);
      return;
    }
    sum_rows<T, float><<<dim3(blocks, static_cast<unsigned>(parts)), block, 0, stream>>>(static_cast<const T*>(x), rows,
                                                                                         channels, sums, parts);
    sum_rows<float, T><<<dim3(blocks, 1), block, 0, stream>>>(sums, parts, channels, static_cast<T*>(out), 1);
  });
}

void bias_relu(cudaStream_t stream, DType dtype, void* y, int64_t rows, int64_t channels, const void* bias, bool relu) {
  constexpr int kThreads = 256;
  const int64_t elements = rows * channels;
  const auto blocks = static_cast<unsigned>(std::min<int64_t>((elements + kThreads - 1) / kThreads, 1 << 20));
  with_number(dtype, [&](auto zero) {
    using T = decltype(zero);
    add_bias<T>
        <<<blocks, kThreads, 0, stream>>>(static_cast<T*>(y), elements, channels, static_cast<const T*>(bias), relu);
  });
}

}  // namespace plimsoll::engine::cuda
