// Launches of the pooling kernels. Images are [n,h,w,c], dense and 16-byte aligned. Every element of the outputs is
// written, and nothing else. Sums and comparisons are float32, in the same order in every run.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "backends/cuda/common/element.h"

namespace plimsoll::engine::cuda {

struct PoolWindow {
  int64_t n = 0;
  int h = 0, w = 0, c = 0;  // size of the image
  int oh = 0, ow = 0;       // size of the pooled image
  int kh = 0, kw = 0, sh = 0, sw = 0, top = 0, left = 0;
};

// `index` is the row-major position of the maximum in its window; the first one if several are equal.
void launch_max_pool(const PoolWindow& g, Element element, const void* x, void* y, uint8_t* index, cudaStream_t stream);
void launch_max_pool_grad(const PoolWindow& g, Element element, const void* dy, const uint8_t* index, void* dx,
                          cudaStream_t stream);
void launch_avg_pool(const PoolWindow& g, Element element, const void* x, void* y, cudaStream_t stream);
void launch_avg_pool_grad(const PoolWindow& g, Element element, const void* dy, void* dx, cudaStream_t stream);

// Images with depth, [n,d,h,w,c], or with windows of more than 255 elements. `wide`: the index has four bytes per
// element, not one.
struct PoolVolume {
  int64_t n = 0;
  int d = 1, h = 0, w = 0, c = 0;  // size of the image
  int od = 1, oh = 0, ow = 0;      // size of the pooled image
  int kd = 1, kh = 0, kw = 0, sd = 1, sh = 0, sw = 0, front = 0, top = 0, left = 0;
};

void launch_max_pool(const PoolVolume& g, Element element, const void* x, void* y, void* index, bool wide,
                     cudaStream_t stream);
void launch_max_pool_grad(const PoolVolume& g, Element element, const void* dy, const void* index, bool wide, void* dx,
                          cudaStream_t stream);
void launch_avg_pool(const PoolVolume& g, Element element, const void* x, void* y, cudaStream_t stream);
void launch_avg_pool_grad(const PoolVolume& g, Element element, const void* dy, void* dx, cudaStream_t stream);

struct GlobalPool {
  int64_t n = 0;
  int pixels = 0, c = 0;
};

void launch_global_avg_pool(const GlobalPool& g, Element element, const void* x, void* y, cudaStream_t stream);
void launch_global_avg_pool_grad(const GlobalPool& g, Element element, const void* dy, void* dx, cudaStream_t stream);
void launch_global_max_pool(const GlobalPool& g, Element element, const void* x, void* y, int32_t* index,
                            cudaStream_t stream);
void launch_global_max_pool_grad(const GlobalPool& g, Element element, const void* dy, const int32_t* index, void* dx,
                                 cudaStream_t stream);

}  // namespace plimsoll::engine::cuda
