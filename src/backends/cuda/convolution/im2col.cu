// Kernels around the GEMM of an im2col convolution (im2col.h): writes the im2col rows, pads the weights to the rows'
// width, and adds up the partial weight gradients.
#include "backends/cuda/convolution/im2col_launch.h"

#include <algorithm>

#include "backends/cuda/reduce/column_sums.cuh"

namespace plimsoll::engine::cuda {
namespace {

constexpr int kThreads = 512, kAtOnce = 4;

// Each block writes the im2col rows of one row of output pixels, as 32-bit words. Neighbouring threads write
// neighbouring words, and a thread keeps its position in the im2col row, so that a pixel costs it little more than the
// copy itself. Neighbouring threads read the same input, so most reads hit the L1 cache.
template <typename Bits, int N>
__global__ void __launch_bounds__(kThreads)
    im2col(Im2colShape s, int words, Bits one, const Bits* __restrict__ x, uint32_t* __restrict__ rows) {
  const int word = static_cast<int>(threadIdx.x) % words, slot = static_cast<int>(threadIdx.x) / words;
  const int slots = static_cast<int>(blockDim.x) / words;
  const int64_t image = blockIdx.x / s.oh;
  const int line = static_cast<int>(blockIdx.x % s.oh);
  const Bits* from[N];
  int first[N];  // image column under output column 0
  bool inside[N];
  Bits otherwise[N];
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const int at = word * N + k, tap = at / s.c;
    const int row = line * s.sh - s.top + tap / s.kw * s.dh;
    first[k] = tap % s.kw * s.dw - s.left;
    inside[k] = at < s.numbers && row >= 0 && row < s.h;
    otherwise[k] = s.one && at == s.numbers ? one : Bits(0);
    from[k] = x + (image * s.h + (inside[k] ? row : 0)) * s.w * s.c + at % s.c;
  }
  uint32_t* to = rows + static_cast<int64_t>(blockIdx.x) * s.ow * words + threadIdx.x;
  for (int column = slot; column < s.ow; column += kAtOnce * slots) {
    uint32_t values[kAtOnce] = {};
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u)
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const int at = (column + u * slots) * s.sw + first[k];
        const bool there = inside[k] && at >= 0 && at < s.w;
        const Bits bits =
            __ldg(from[k] + (there ? at * s.c : 0));  // the address is always valid, so that all loads are independent
        values[u] |= static_cast<uint32_t>(there ? bits : otherwise[k]) << (16 * k);
      }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u)
      if (column + u * slots < s.ow) to[static_cast<int64_t>(column - slot + u * slots) * words] = values[u];
  }
}

template <typename Bits>
__global__ void fill_up(int64_t elements, int64_t numbers, int64_t width, const Bits* from, const Bits* last,
                        Bits* to) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= elements) return;
  const int64_t row = i / width, at = i % width;
  const bool behind = at == numbers && last != nullptr;
  to[i] = at < numbers ? from[row * numbers + at] : behind ? last[row] : Bits(0);
}

template <typename T>
struct Parts {
  static constexpr int kSums = 1;
  const float* parts;
  int64_t numbers, width, columns;
  T *dw, *db;

  template <int N>
  __device__ void add(int64_t row, int64_t column, float (&sums)[kSums][N]) const {
    const Pack<float, N> pack = load_pack<N>(parts + row * columns + column);
#pragma unroll
    for (int k = 0; k < N; ++k) sums[0][k] += pack.v[k];
  }
  __device__ void store(int, int64_t at, float value) const {
    const int64_t output = at / width, number = at % width;
    if (number < numbers) dw[output * numbers + number] = from_float<T>(value);
    if (number == numbers && db != nullptr) db[output] = from_float<T>(value);
  }
};

}  // namespace

void launch_im2col(const Im2colShape& shape, Element element, const void* x, void* rows, cudaStream_t stream) {
  const bool wide = element == Element::kF32;
  const int words = wide ? shape.width : shape.width / 2;
  assert(words <= kThreads);
  const int slots = std::clamp(kThreads / words, 1, shape.ow);
  const auto blocks = static_cast<unsigned>(shape.images * shape.oh), threads = static_cast<unsigned>(words * slots);
  auto* to = static_cast<uint32_t*>(rows);
  if (wide) {
    constexpr uint32_t kOne = 0x3f800000;
    im2col<uint32_t, 1><<<blocks, threads, 0, stream>>>(shape, words, kOne, static_cast<const uint32_t*>(x), to);
  } else {
    const auto one = static_cast<uint16_t>(element == Element::kBF16 ? 0x3f80 : 0x3c00);
    im2col<uint16_t, 2><<<blocks, threads, 0, stream>>>(shape, words, one, static_cast<const uint16_t*>(x), to);
  }
}

void launch_fill_up(int64_t rows, int64_t numbers, int64_t width, Element element, const void* from, const void* last,
                    void* to, cudaStream_t stream) {
  const int64_t elements = rows * width;
  const auto launch = [&]<typename Bits>(Bits) {
    fill_up<<<blocks_for(elements, kThreads), kThreads, 0, stream>>>(
        elements, numbers, width, static_cast<const Bits*>(from), static_cast<const Bits*>(last),
        static_cast<Bits*>(to));
  };
  if (element == Element::kF32)
    launch(uint32_t{});
  else
    launch(uint16_t{});
}

void launch_sum_parts(int64_t count, int64_t outputs, int64_t numbers, int64_t width, const float* parts,
                      Element element, void* dw, void* db, cudaStream_t stream) {
  constexpr int kNumbers = kPack<float>;
  assert(width % kNumbers == 0);
  ColumnSums plan = plan_column_sums(1, count, outputs * width, sizeof(float));
  plan.chunks = 1, plan.chunk_rows = count;  // few rows: one chunk, without a second summation,
  plan.lanes = 4;                            // but narrow blocks, in which many threads share the rows
  plan.tiles = (outputs * width / kNumbers + plan.lanes - 1) / plan.lanes;
  with_element(element, [&]<typename T>() {
    const Parts<T> op{parts, numbers, width, outputs * width, static_cast<T*>(dw), static_cast<T*>(db)};
    launch_column_sums<kNumbers>(plan, op, {}, stream);
  });
}

}  // namespace plimsoll::engine::cuda
