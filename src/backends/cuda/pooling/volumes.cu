// Max and average pooling over NDHWC images, and their gradients; also over images without depth whose windows have
// more than 255 elements. A thread processes a pack of channels at one pixel of the tensor that is written, so that all
// accesses are 16 bytes wide and coalesced. Neighbouring threads read mostly the same windows, from the L1 cache.
#include <algorithm>

#include "backends/cuda/common/device.cuh"
#include "backends/cuda/pooling/launch.h"

namespace plimsoll::engine::cuda {

namespace {

constexpr int kThreads = 256;

// Maps a thread to its voxel and channels.
struct Voxels {
  Divider packs, columns, rows, planes;
  uint32_t items = 0;  // over all images of one launch

  Voxels(int64_t images, int d, int h, int w, int channel_packs)
      : packs(channel_packs), columns(w), rows(h), planes(d) {
    items = static_cast<uint32_t>(images * d * h * w * channel_packs);
  }

  struct Place {
    uint32_t voxel;  // counted over the images of the launch
    int image, z, y, x, pack;
  };
  __device__ Place place(uint32_t item) const {
    Place p{};
    uint32_t column = packs.split(item);
    p.pack = static_cast<int>(item);
    p.voxel = column;
    uint32_t row = columns.split(column);
    p.x = static_cast<int>(column);
    uint32_t plane = rows.split(row);
    p.y = static_cast<int>(row);
    p.image = static_cast<int>(planes.split(plane));
    p.z = static_cast<int>(plane);
    return p;
  }
};

// The part of a window inside the image, along one dimension.
struct Inside {
  int start, first, last;

  __device__ Inside(int at, int stride, int before, int kernel, int size) {
    start = at * stride - before;
    first = max(start, 0);
    last = min(start + kernel, size);
  }
  __device__ int count() const { return last - first; }
};

// The windows that cover a position, along one dimension.
struct Covering {
  int first, last;

  __device__ Covering(int at, int before, int kernel, int stride, int windows) {
    const int padded = at + before;
    first = padded < kernel ? 0 : (padded - kernel) / stride + 1;
    last = min(padded / stride + 1, windows);
  }
};

template <typename T, typename Index, int N, bool kMax>
__global__ void __launch_bounds__(kThreads)
    volume_forward(PoolVolume g, Voxels voxels, int64_t first_image, const T* __restrict__ x, T* __restrict__ y,
                   Index* __restrict__ index) {
  const uint32_t item = blockIdx.x * kThreads + threadIdx.x;
  if (item >= voxels.items) return;
  const auto p = voxels.place(item);
  const Inside planes(p.z, g.sd, g.front, g.kd, g.d), rows(p.y, g.sh, g.top, g.kh, g.h),
      columns(p.x, g.sw, g.left, g.kw, g.w);
  const int64_t image = first_image + p.image;
  float best[N];
  int tap[N];
#pragma unroll
  for (int k = 0; k < N; ++k) {
    best[k] = 0;
    tap[k] = -1;  // nothing read yet
  }
  for (int a = planes.first; a < planes.last; ++a)
    for (int b = rows.first; b < rows.last; ++b) {
      const T* line = x + ((image * g.d + a) * g.h + b) * g.w * g.c + p.pack * N;
      const int taps = ((a - planes.start) * g.kh + b - rows.start) * g.kw - columns.start;
      for (int c = columns.first; c < columns.last; ++c) {
        const auto pack = load_pack<N>(line + static_cast<int64_t>(c) * g.c);
#pragma unroll
        for (int k = 0; k < N; ++k) {
          const float v = to_float(pack.v[k]);
          if constexpr (kMax) {
            if (tap[k] < 0 || v > best[k]) {
              best[k] = v;
              tap[k] = taps + c;
            }
          } else {
            best[k] += v;
          }
        }
      }
    }
  const int64_t per_image = static_cast<int64_t>(g.od) * g.oh * g.ow;
  const int64_t at = (first_image * per_image + p.voxel) * g.c + p.pack * N;
  const auto count = static_cast<float>(planes.count() * rows.count() * columns.count());
  Pack<T, N> values;
#pragma unroll
  for (int k = 0; k < N; ++k) values.v[k] = from_float<T>(kMax ? best[k] : best[k] / count);
  store_pack(y + at, values);
  if constexpr (kMax) {
    Pack<Index, N> taps;
#pragma unroll
    for (int k = 0; k < N; ++k) taps.v[k] = static_cast<Index>(tap[k]);
    store_pack(index + at, taps);
  }
}

// Each voxel of dx gathers from the windows that cover it.
template <typename T, typename Index, int N, bool kMax>
__global__ void __launch_bounds__(kThreads)
    volume_grad(PoolVolume g, Voxels voxels, int64_t first_image, const T* __restrict__ dy,
                const Index* __restrict__ index, T* __restrict__ dx) {
  const uint32_t item = blockIdx.x * kThreads + threadIdx.x;
  if (item >= voxels.items) return;
  const auto p = voxels.place(item);
  const Covering planes(p.z, g.front, g.kd, g.sd, g.od), rows(p.y, g.top, g.kh, g.sh, g.oh),
      columns(p.x, g.left, g.kw, g.sw, g.ow);
  const int64_t image = first_image + p.image;
  float sum[N];
#pragma unroll
  for (int k = 0; k < N; ++k) sum[k] = 0;
  for (int a = planes.first; a < planes.last; ++a)
    for (int b = rows.first; b < rows.last; ++b)
      for (int c = columns.first; c < columns.last; ++c) {
        const int64_t at = (((image * g.od + a) * g.oh + b) * g.ow + c) * g.c + p.pack * N;
        const auto gradient = load_pack<N>(dy + at);
        const Inside z(a, g.sd, g.front, g.kd, g.d), y(b, g.sh, g.top, g.kh, g.h), x(c, g.sw, g.left, g.kw, g.w);
        if constexpr (kMax) {
          const auto tap = load_pack<N>(index + at);
          const int here = ((p.z - z.start) * g.kh + p.y - y.start) * g.kw + p.x - x.start;
#pragma unroll
          for (int k = 0; k < N; ++k)
            if (static_cast<int>(tap.v[k]) == here) sum[k] += to_float(gradient.v[k]);
        } else {
          const float share = 1.0F / static_cast<float>(z.count() * y.count() * x.count());
#pragma unroll
          for (int k = 0; k < N; ++k) sum[k] += to_float(gradient.v[k]) * share;
        }
      }
  Pack<T, N> result;
#pragma unroll
  for (int k = 0; k < N; ++k) result.v[k] = from_float<T>(sum[k]);
  const int64_t per_image = static_cast<int64_t>(g.d) * g.h * g.w;
  store_pack(dx + (first_image * per_image + p.voxel) * g.c + p.pack * N, result);
}

// Calls launch(voxels, first image) for as many images at a time as 31-bit indices allow.
template <typename F>
void for_images(const PoolVolume& g, int d, int h, int w, int packs, F launch) {
  const int64_t an_image = static_cast<int64_t>(d) * h * w * packs;
  const int64_t at_once = std::max<int64_t>(1, ((int64_t{1} << 31) - 1 - kThreads) / an_image);
  for (int64_t first = 0; first < g.n; first += at_once) {
    launch(Voxels(std::min(at_once, g.n - first), d, h, w, packs), first);
    check_launch();
  }
}

template <bool kMax, typename Index>
void forward(const PoolVolume& g, Element element, const void* x, void* y, Index* index, cudaStream_t stream) {
  with_packs(element, g.c, [&]<typename T, int N>() {
    for_images(g, g.od, g.oh, g.ow, g.c / N, [&](const Voxels& voxels, int64_t first) {
      volume_forward<T, Index, N, kMax><<<blocks_for(voxels.items, kThreads), kThreads, 0, stream>>>(
          g, voxels, first, static_cast<const T*>(x), static_cast<T*>(y), index);
    });
  });
}

template <bool kMax, typename Index>
void backward(const PoolVolume& g, Element element, const void* dy, const Index* index, void* dx, cudaStream_t stream) {
  with_packs(element, g.c, [&]<typename T, int N>() {
    for_images(g, g.d, g.h, g.w, g.c / N, [&](const Voxels& voxels, int64_t first) {
      volume_grad<T, Index, N, kMax><<<blocks_for(voxels.items, kThreads), kThreads, 0, stream>>>(
          g, voxels, first, static_cast<const T*>(dy), index, static_cast<T*>(dx));
    });
  });
}

}  // namespace

void launch_max_pool(const PoolVolume& g, Element element, const void* x, void* y, void* index, bool wide,
                     cudaStream_t stream) {
  if (wide)
    forward<true>(g, element, x, y, static_cast<int32_t*>(index), stream);
  else
    forward<true>(g, element, x, y, static_cast<uint8_t*>(index), stream);
}

void launch_max_pool_grad(const PoolVolume& g, Element element, const void* dy, const void* index, bool wide, void* dx,
                          cudaStream_t stream) {
  if (wide)
    backward<true>(g, element, dy, static_cast<const int32_t*>(index), dx, stream);
  else
    backward<true>(g, element, dy, static_cast<const uint8_t*>(index), dx, stream);
}

void launch_avg_pool(const PoolVolume& g, Element element, const void* x, void* y, cudaStream_t stream) {
  forward<false, uint8_t>(g, element, x, y, nullptr, stream);
}

void launch_avg_pool_grad(const PoolVolume& g, Element element, const void* dy, void* dx, cudaStream_t stream) {
  backward<false, uint8_t>(g, element, dy, nullptr, dx, stream);
}

}  // namespace plimsoll::engine::cuda
