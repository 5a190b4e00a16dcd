// Max and average pooling over NHWC images, and their gradients. A thread processes a pack of channels at one output
// pixel (at a 2x2 block of pixels for gradients with stride 2), so that all accesses are 16 bytes wide and coalesced.
//
// Overlapping windows read each pixel several times. Threads are numbered so that a block covers a patch of four rows;
// most of these reads then hit the L1 cache.
#include "backends/cuda/pooling/launch.h"

#include <algorithm>

#include "backends/cuda/common/device.cuh"

namespace plimsoll::engine::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kPatchRows = 4;

// Maps a thread to its pixel and channels. After the channels, the row within a patch varies fastest.
struct Tiling {
  int height = 0, width = 0, rows = 1;
  Divider packs, row, column, strip;  // divide by packs per pixel, rows per patch, columns, strips per image
  uint32_t items = 0;                 // over all images of one launch

  Tiling(int64_t images, int h, int w, int channel_packs, int patch_rows)
      : height(h), width(w), rows(patch_rows), packs(channel_packs), row(patch_rows), column(w) {
    const int64_t strips = (h + rows - 1) / rows;
    strip = Divider(strips);
    items = static_cast<uint32_t>(images * strips * w * rows * channel_packs);
  }

  struct Place {
    uint32_t image, y, x, pack;
    bool inside;
  };
  __device__ Place place(uint32_t item) const {
    Place p{};
    uint32_t rest = packs.split(item);
    p.pack = item;
    const uint32_t after_row = row.split(rest);
    uint32_t at_column = after_row;
    uint32_t at_strip = column.split(at_column);
    p.x = at_column;
    p.image = strip.split(at_strip);
    p.y = at_strip * static_cast<uint32_t>(rows) + rest;
    p.inside = p.y < static_cast<uint32_t>(height);
    return p;
  }
};

template <typename T, int N>
struct MaxOfWindow {
  T* y;
  uint8_t* index;

  float best[N];
  uint8_t tap[N];

  __device__ void begin() {
#pragma unroll
    for (int i = 0; i < N; ++i) tap[i] = 255;  // no window has this position: nothing read yet
  }
  __device__ void take(const Pack<T, N>& pack, int at) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float v = to_float(pack.v[i]);
      if (tap[i] == 255 || v > best[i]) {
        best[i] = v;
        tap[i] = static_cast<uint8_t>(at);
      }
    }
  }
  __device__ void end(int64_t at, int) {
    Pack<T, N> values;
    Pack<uint8_t, N> taps;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      values.v[i] = from_float<T>(best[i]);
      taps.v[i] = tap[i];
    }
    store_pack(y + at, values);
    store_pack(index + at, taps);
  }
};

template <typename T, int N>
struct MeanOfWindow {
  T* y;

  float sum[N];

  __device__ void begin() {
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] = 0;
  }
  __device__ void take(const Pack<T, N>& pack, int) {
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] += to_float(pack.v[i]);
  }
  __device__ void end(int64_t at, int count) {
    Pack<T, N> values;
#pragma unroll
    for (int i = 0; i < N; ++i) values.v[i] = from_float<T>(sum[i] / static_cast<float>(count));
    store_pack(y + at, values);
  }
};

// kSize is the height and width of a square window known at compile time, else 0.
template <typename T, int N, int kSize, typename Window>
__global__ void __launch_bounds__(kThreads)
    pool_forward(PoolWindow g, Tiling tiling, int64_t first_image, const T* __restrict__ x, Window window) {
  const uint32_t item = blockIdx.x * kThreads + threadIdx.x;
  if (item >= tiling.items) return;
  const auto p = tiling.place(item);
  if (!p.inside) return;
  const int kh = kSize ? kSize : g.kh, kw = kSize ? kSize : g.kw;
  const int64_t image = first_image + p.image;
  const int top = static_cast<int>(p.y) * g.sh - g.top, left = static_cast<int>(p.x) * g.sw - g.left;
  const T* from = x + image * g.h * g.w * g.c + p.pack * N;
  window.begin();
  const auto load = [&](int row, int column) {
    return load_pack<N>(from + (static_cast<int64_t>(row) * g.w + column) * g.c);
  };
  const auto inside = [&](int row, int column) { return row >= 0 && row < g.h && column >= 0 && column < g.w; };
  if constexpr (kSize != 0) {
    Pack<T, N> held[kSize][kSize];
    // Loads outside the image are clamped to a valid pixel, so that all loads are independent of each other.
#pragma unroll
    for (int i = 0; i < kSize; ++i)
#pragma unroll
      for (int j = 0; j < kSize; ++j) held[i][j] = load(min(max(top + i, 0), g.h - 1), min(max(left + j, 0), g.w - 1));
#pragma unroll
    for (int i = 0; i < kSize; ++i)
#pragma unroll
      for (int j = 0; j < kSize; ++j)
        if (inside(top + i, left + j)) window.take(held[i][j], i * kSize + j);
  } else {
    for (int i = 0; i < kh; ++i)
      for (int j = 0; j < kw; ++j)
        if (inside(top + i, left + j)) window.take(load(top + i, left + j), i * kw + j);
  }
  const int rows = min(top + kh, g.h) - max(top, 0), columns = min(left + kw, g.w) - max(left, 0);
  window.end(((image * g.oh + p.y) * g.ow + p.x) * g.c + p.pack * N, rows * columns);
}

// The gradient of non-overlapping (kSize 2) or overlapping (kSize 3) windows with stride 2. A thread processes the
// pixels (2i, 2j) to (2i+1, 2j+1) of the padded image. Window i covers them, and for kSize 3 also window i-1.
template <typename T, int N, int kSize>
__global__ void __launch_bounds__(kThreads)
    max_pool_grad_by_two(PoolWindow g, Tiling tiling, int64_t first_image, const T* __restrict__ dy,
                         const uint8_t* __restrict__ index, T* __restrict__ dx) {
  constexpr int kReach = kSize - 1;  // windows per axis
  const uint32_t item = blockIdx.x * kThreads + threadIdx.x;
  if (item >= tiling.items) return;
  const auto p = tiling.place(item);
  if (!p.inside) return;
  const int64_t image = first_image + p.image;
  const int i = static_cast<int>(p.y) + g.top / 2, j = static_cast<int>(p.x) + g.left / 2;
  Pack<T, N> gradient[kReach][kReach];
  Pack<uint8_t, N> tap[kReach][kReach];
#pragma unroll
  for (int a = 0; a < kReach; ++a)
#pragma unroll
    for (int b = 0; b < kReach; ++b) {
      const int y = i - a, x = j - b;
      if (y >= 0 && y < g.oh && x >= 0 && x < g.ow) {
        const int64_t at = ((image * g.oh + y) * g.ow + x) * g.c + p.pack * N;
        gradient[a][b] = load_pack<N>(dy + at);
        tap[a][b] = load_pack<N>(index + at);
      } else {
#pragma unroll
        for (int k = 0; k < N; ++k) {
          gradient[a][b].v[k] = from_float<T>(0);
          tap[a][b].v[k] = 255;
        }
      }
    }
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const int row = 2 * i + r - g.top, column = 2 * j + s - g.left;
      if (row < 0 || row >= g.h || column < 0 || column >= g.w) continue;
      Pack<T, N> sum;
#pragma unroll
      for (int k = 0; k < N; ++k) {
        float total = 0;
#pragma unroll
        for (int a = kReach - 1; a >= 0; --a)
#pragma unroll
          for (int b = kReach - 1; b >= 0; --b) {
            if (r + 2 * a >= kSize || s + 2 * b >= kSize) continue;
            const int here = (r + 2 * a) * kSize + s + 2 * b;
            if (tap[a][b].v[k] == here) total += to_float(gradient[a][b].v[k]);
          }
        sum.v[k] = from_float<T>(total);
      }
      store_pack(dx + ((image * g.h + row) * g.w + column) * g.c + p.pack * N, sum);
    }
}

// The windows that cover a row or column: `first` to `last`.
struct Reach {
  int first, last;
  __device__ Reach(int at, int before, int size, int stride, int count) {
    const int padded = at + before;
    first = padded < size ? 0 : (padded - size) / stride + 1;
    last = min(padded / stride, count - 1);
  }
};

// Any window and stride: each pixel of dx gathers from the windows that cover it.
template <typename T, int N, bool kMax>
__global__ void __launch_bounds__(kThreads)
    pool_grad(PoolWindow g, Tiling tiling, int64_t first_image, const T* __restrict__ dy,
              const uint8_t* __restrict__ index, T* __restrict__ dx) {
  const uint32_t item = blockIdx.x * kThreads + threadIdx.x;
  if (item >= tiling.items) return;
  const auto p = tiling.place(item);
  if (!p.inside) return;
  const int64_t image = first_image + p.image;
  const int row = static_cast<int>(p.y), column = static_cast<int>(p.x);
  const Reach ys(row, g.top, g.kh, g.sh, g.oh), xs(column, g.left, g.kw, g.sw, g.ow);
  float sum[N];
#pragma unroll
  for (int k = 0; k < N; ++k) sum[k] = 0;
  for (int y = ys.first; y <= ys.last; ++y)
    for (int x = xs.first; x <= xs.last; ++x) {
      const int64_t at = ((image * g.oh + y) * g.ow + x) * g.c + p.pack * N;
      const auto gradient = load_pack<N>(dy + at);
      const int top = y * g.sh - g.top, left = x * g.sw - g.left;
      if constexpr (kMax) {
        const auto tap = load_pack<N>(index + at);
        const int here = (row - top) * g.kw + column - left;
#pragma unroll
        for (int k = 0; k < N; ++k)
          if (tap.v[k] == here) sum[k] += to_float(gradient.v[k]);
      } else {
        const int count = (min(top + g.kh, g.h) - max(top, 0)) * (min(left + g.kw, g.w) - max(left, 0));
        const float share = 1.0F / static_cast<float>(count);
#pragma unroll
        for (int k = 0; k < N; ++k) sum[k] += to_float(gradient.v[k]) * share;
      }
    }
  Pack<T, N> result;
#pragma unroll
  for (int k = 0; k < N; ++k) result.v[k] = from_float<T>(sum[k]);
  store_pack(dx + ((image * g.h + row) * g.w + column) * g.c + p.pack * N, result);
}

// Calls launch(tiling, first image) for as many images at a time as 31-bit indices allow.
template <typename F>
void for_images(const PoolWindow& g, int height, int width, int packs, int patch_rows, F launch) {
  const int64_t strips = (height + patch_rows - 1) / patch_rows;
  const int64_t an_image = strips * patch_rows * width * packs;
  const int64_t at_once = std::max<int64_t>(1, ((int64_t{1} << 31) - 1 - kThreads) / an_image);
  for (int64_t first = 0; first < g.n; first += at_once) {
    const Tiling tiling(std::min(at_once, g.n - first), height, width, packs, patch_rows);
    launch(tiling, first);
    check_launch();
  }
}

template <typename T, int N, typename Window>
void forward(const PoolWindow& g, const T* x, const Window& window, cudaStream_t stream) {
  const bool overlap = g.kh > g.sh;
  for_images(g, g.oh, g.ow, g.c / N, overlap ? kPatchRows : 1, [&](const Tiling& tiling, int64_t first) {
    const unsigned blocks = blocks_for(tiling.items, kThreads);
    if (g.kh == 2 && g.kw == 2)
      pool_forward<T, N, 2><<<blocks, kThreads, 0, stream>>>(g, tiling, first, x, window);
    else if (g.kh == 3 && g.kw == 3)
      pool_forward<T, N, 3><<<blocks, kThreads, 0, stream>>>(g, tiling, first, x, window);
    else
      pool_forward<T, N, 0><<<blocks, kThreads, 0, stream>>>(g, tiling, first, x, window);
  });
}

template <typename T, int N, bool kMax>
void backward(const PoolWindow& g, const T* dy, const uint8_t* index, T* dx, cudaStream_t stream) {
  if constexpr (kMax) {
    if (g.kh == g.kw && (g.kh == 2 || g.kh == 3) && g.sh == 2 && g.sw == 2) {
      const int height = (g.h + g.top - 1) / 2 - g.top / 2 + 1, width = (g.w + g.left - 1) / 2 - g.left / 2 + 1;
      for_images(g, height, width, g.c / N, g.kh == 3 ? kPatchRows : 1, [&](const Tiling& tiling, int64_t first) {
        const unsigned blocks = blocks_for(tiling.items, kThreads);
        if (g.kh == 2)
          max_pool_grad_by_two<T, N, 2><<<blocks, kThreads, 0, stream>>>(g, tiling, first, dy, index, dx);
        else
          max_pool_grad_by_two<T, N, 3><<<blocks, kThreads, 0, stream>>>(g, tiling, first, dy, index, dx);
      });
      return;
    }
  }
  for_images(g, g.h, g.w, g.c / N, kPatchRows, [&](const Tiling& tiling, int64_t first) {
    pool_grad<T, N, kMax><<<blocks_for(tiling.items, kThreads), kThreads, 0, stream>>>(g, tiling, first, dy, index, dx);
  });
}

}  // namespace

void launch_max_pool(const PoolWindow& g, Element element, const void* x, void* y, uint8_t* index,
                     cudaStream_t stream) {
  with_packs(element, g.c, [&]<typename T, int N>() {
    forward<T, N>(g, static_cast<const T*>(x), MaxOfWindow<T, N>{static_cast<T*>(y), index, {}, {}}, stream);
  });
}

void launch_avg_pool(const PoolWindow& g, Element element, const void* x, void* y, cudaStream_t stream) {
  with_packs(element, g.c, [&]<typename T, int N>() {
    forward<T, N>(g, static_cast<const T*>(x), MeanOfWindow<T, N>{static_cast<T*>(y), {}}, stream);
  });
}

void launch_max_pool_grad(const PoolWindow& g, Element element, const void* dy, const uint8_t* index, void* dx,
                          cudaStream_t stream) {
  with_packs(element, g.c, [&]<typename T, int N>() {
    backward<T, N, true>(g, static_cast<const T*>(dy), index, static_cast<T*>(dx), stream);
  });
}

void launch_avg_pool_grad(const PoolWindow& g, Element element, const void* dy, void* dx, cudaStream_t stream) {
  with_packs(element, g.c, [&]<typename T, int N>() {
    backward<T, N, false>(g, static_cast<const T*>(dy), nullptr, static_cast<T*>(dx), stream);
  });
}

}  // namespace plimsoll::engine::cuda
