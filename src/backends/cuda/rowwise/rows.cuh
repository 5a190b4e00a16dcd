// The common structure of all row-wise kernels. An op is a struct with
//
//   static constexpr int kInputs;                      // number of input rows it visits together, all of type T
//   const T* inputs[kInputs];
//   template <typename R, typename G> __device__ void run(R& row, const G& group, int64_t at) const;
//
// `group` is the set of threads that share the row: part of a warp for short rows, a block for long ones. `row` visits
// each element once per call, and keeps the elements in registers or shared memory if the row fits. Then a row is read
// from memory once, however often it is visited. A thread visits the same elements each time, so in its last visit it
// may overwrite the input.
#pragma once

#include <algorithm>

#include "backends/cuda/common/device.cuh"
#include "backends/cuda/rowwise/launch.h"

namespace plimsoll::engine::cuda {

// A power-of-two number of adjacent lanes. All lanes of the warp must call the combining functions.
struct LaneGroup {
  int rank, size;

  __device__ float sum(float v) const {
    for (int offset = size / 2; offset > 0; offset /= 2) v += __shfl_xor_sync(kAllLanes, v, offset);
    return v;
  }
  __device__ float max(float v) const {
    for (int offset = size / 2; offset > 0; offset /= 2) v = fmaxf(v, __shfl_xor_sync(kAllLanes, v, offset));
    return v;
  }
  __device__ int min(int v) const {
    for (int offset = size / 2; offset > 0; offset /= 2) v = ::min(v, __shfl_xor_sync(kAllLanes, v, offset));
    return v;
  }
};

struct BlockGroup {
  int rank, size;
  float* scratch;  // 32 floats

  template <typename T, typename Join>
  __device__ T combine(T v, T neutral, Join join) const {
    T* shared = reinterpret_cast<T*>(scratch);
    for (int offset = kWarp / 2; offset > 0; offset /= 2) v = join(v, __shfl_xor_sync(kAllLanes, v, offset));
    __syncthreads();  // an earlier result may still be in use
    if (rank % kWarp == 0) shared[rank / kWarp] = v;
    __syncthreads();
    v = rank % kWarp < size / kWarp ? shared[rank % kWarp] : neutral;
    for (int offset = kWarp / 2; offset > 0; offset /= 2) v = join(v, __shfl_xor_sync(kAllLanes, v, offset));
    return v;
  }
  __device__ float sum(float v) const {
    return combine(v, 0.0F, [](float a, float b) { return a + b; });
  }
  __device__ float max(float v) const {
    return combine(v, -INFINITY, [](float a, float b) { return fmaxf(a, b); });
  }
  __device__ int min(int v) const {
    return combine(v, 0x7fffffff, [](int a, int b) { return ::min(a, b); });
  }
};

inline constexpr int kInShared = -1, kReadAgain = 0;

extern __shared__ uint4 row_packs[];  // 16 bytes per pack and input

// One thread's share of kInputs rows: packs of N elements. kHeld of them are kept in registers, or kHeld is kInShared
// or kReadAgain (read from memory at each visit). If rows may begin or end inside a pack, the thread also has up to one
// single element (kEdges; needs groups of at least 2N threads).
template <typename T, int N, int kHeld, bool kEdges, int kInputs>
class RowShare {
 public:
  static constexpr bool kInRegisters = kHeld > 0;
  static constexpr bool kReadOnce = kHeld != kReadAgain;

  __device__ RowShare(const T* const (&rows)[kInputs], int columns, int rank, int size)
      : columns_(columns), rank_(rank), size_(size) {
#pragma unroll
    for (int i = 0; i < kInputs; ++i) rows_[i] = rows[i];
    if constexpr (kEdges) {
      const auto past = static_cast<int>(reinterpret_cast<uintptr_t>(rows[0]) % 16 / sizeof(T));
      head_ = min((N - past) % N, columns);
      packs_ = (columns - head_) / N;
      const int tail = columns - head_ - packs_ * N;
      if (rank < head_) edge_ = rank;
      if (rank >= N && rank - N < tail) edge_ = columns - tail + rank - N;
    } else {
      packs_ = columns / N;
    }
    if constexpr (kInRegisters) {
#pragma unroll
      for (int p = 0; p < kHeld; ++p)
        if (rank_ + p * size_ < packs_) read(rank_ + p * size_, held_[p]);
    }
    if constexpr (kHeld == kInShared) {
#pragma unroll 4
      for (int p = rank_; p < packs_; p += size_) {
        Pack<T, N> packs[kInputs];
        read(p, packs);
#pragma unroll
        for (int i = 0; i < kInputs; ++i) store_pack(kept(p, i), packs[i]);
      }
    }
    if constexpr (kEdges)
      if (edge_ >= 0)
#pragma unroll
        for (int i = 0; i < kInputs; ++i) single_[i] = rows_[i][edge_];
  }

  __device__ int columns() const {
    return columns_;
  }

  // Calls f(values, column) for each element of the share.
  template <typename F>
  __device__ void visit(F f) const {
    walk([&](const Pack<T, N>(&packs)[kInputs], int column) {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        float v[kInputs];
#pragma unroll
        for (int i = 0; i < kInputs; ++i) v[i] = to_float(packs[i].v[k]);
        f(v, column + k);
      }
    });
    if constexpr (kEdges)
      if (edge_ >= 0) {
        float v[kInputs];
#pragma unroll
        for (int i = 0; i < kInputs; ++i) v[i] = to_float(single_[i]);
        f(v, edge_);
      }
  }

  // out[column] = f(values, column). The row `out` has the same alignment as the inputs.
  template <typename F>
  __device__ void write(T* out, F f) const {
    walk([&](const Pack<T, N>(&packs)[kInputs], int column) {
      Pack<T, N> result;
#pragma unroll
      for (int k = 0; k < N; ++k) {
        float v[kInputs];
#pragma unroll
        for (int i = 0; i < kInputs; ++i) v[i] = to_float(packs[i].v[k]);
        result.v[k] = from_float<T>(f(v, column + k));
      }
      store_pack(out + column, result);
    });
    if constexpr (kEdges)
      if (edge_ >= 0) {
        float v[kInputs];
#pragma unroll
        for (int i = 0; i < kInputs; ++i) v[i] = to_float(single_[i]);
        out[edge_] = from_float<T>(f(v, edge_));
      }
  }

 private:
  __device__ void read(int pack, Pack<T, N> (&to)[kInputs]) const {
#pragma unroll
    for (int i = 0; i < kInputs; ++i) to[i] = load_pack<N>(rows_[i] + head_ + pack * N);
  }

  // Each thread reads only the elements it stored itself, so no barrier is needed.
  __device__ static T* kept(int pack, int input) {
    return reinterpret_cast<T*>(row_packs + pack * kInputs + input);
  }

  template <typename F>
  __device__ void walk(F f) const {
    if constexpr (kInRegisters) {
#pragma unroll
      for (int p = 0; p < kHeld; ++p)
        if (rank_ + p * size_ < packs_) f(held_[p], head_ + (rank_ + p * size_) * N);
    } else {
#pragma unroll 4
      for (int p = rank_; p < packs_; p += size_) {
        Pack<T, N> packs[kInputs];
        if constexpr (kHeld == kInShared) {
#pragma unroll
          for (int i = 0; i < kInputs; ++i) packs[i] = load_pack<N>(kept(p, i));
        } else {
          read(p, packs);
        }
        f(packs, head_ + p * N);
      }
    }
  }

  const T* rows_[kInputs];
  int columns_, rank_, size_;
  int head_ = 0, packs_ = 0, edge_ = -1;
  Pack<T, N> held_[kInRegisters ? kHeld : 1][kInputs];
  T single_[kInputs];
};

// The smoothed target of one row. Row -1 is for lanes without a row.
struct RowTarget {
  const float* dense;
  int label;
  float scale, offset;
  bool valid;

  __device__ RowTarget(const Target& target, int64_t row, int columns)
      : dense(target.labels ? nullptr : target.dense + (row < 0 ? 0 : row) * columns),
        label(target.labels && row >= 0 ? target.labels[row] : -1),
        scale(1.0F - target.smoothing),
        offset(target.smoothing / static_cast<float>(columns)),
        valid(dense || (label >= 0 && label < columns)) {}
  __device__ float operator()(int column) const {
    return (dense ? dense[column] : column == label ? 1.0F : 0.0F) * scale + offset;
  }
};

constexpr int kLaneBlock = 256;  // threads per block if each warp has its own rows

// Several rows per block, `lanes` threads per row.
template <typename T, int N, int kHeld, typename Op>
__global__ void __launch_bounds__(kLaneBlock) rows_by_lanes(Rows g, int lanes, Op op) {
  const int rank = static_cast<int>(threadIdx.x) % lanes;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kLaneBlock / lanes) + static_cast<int>(threadIdx.x) / lanes;
  const LaneGroup group{rank, lanes};
  const bool there = row < g.rows;  // lanes without a row take part, because warp shuffles need all lanes
  const T* rows[Op::kInputs];
#pragma unroll
  for (int i = 0; i < Op::kInputs; ++i) rows[i] = op.inputs[i] + (there ? row : 0) * g.columns;
  RowShare<T, N, kHeld, false, Op::kInputs> share(rows, there ? g.columns : 0, rank, lanes);
  op.run(share, group, there ? row : -1);
}

// One row per block.
template <typename T, int kHeld, int kThreads, typename Op>
__global__ void __launch_bounds__(kThreads) rows_by_blocks(Rows g, Op op) {
  __shared__ float scratch[kWarp];
  const int rank = static_cast<int>(threadIdx.x);
  const int64_t row = blockIdx.x;
  const T* rows[Op::kInputs];
#pragma unroll
  for (int i = 0; i < Op::kInputs; ++i) rows[i] = op.inputs[i] + row * g.columns;
  RowShare<T, kPack<T>, kHeld, true, Op::kInputs> share(rows, g.columns, rank, kThreads);
  op.run(share, BlockGroup{rank, kThreads, scratch}, row);
}

// Number of lanes for a row of single elements: about four elements per lane.
inline int lanes_for(int columns) {
  int lanes = 1;
  while (lanes * 4 < columns && lanes < kWarp) lanes *= 2;
  return lanes;
}

template <typename T, int N, int kHeld, typename Op>
void launch_by_lanes(const Rows& g, int lanes, const Op& op, cudaStream_t stream) {
  const unsigned blocks = blocks_for(g.rows, kLaneBlock / lanes);
  rows_by_lanes<T, N, kHeld><<<blocks, kLaneBlock, 0, stream>>>(g, lanes, op);
  check_launch();
}

// The shared memory a block may use so that two blocks fit on a multiprocessor and overlap loads with arithmetic.
inline int half_of_shared_memory() {
  static const int bytes = [] {
    int device = 0, in_all = 0, a_block = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&in_all, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
    cudaDeviceGetAttribute(&a_block, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    constexpr int kReserved = 2048;  // used by the driver and by our static shared memory
    return std::min(in_all / 2, a_block) - kReserved;
  }();
  return bytes;
}

// For ops that visit a row more than once.
template <typename T, typename Op>
void launch_rows(const Rows& g, const Op& op, cudaStream_t stream) {
  constexpr int N = kPack<T>;
  constexpr int kLong = 512;  // threads for long rows
  if (g.columns <= 4 * kWarp) return launch_by_lanes<T, 1, 4>(g, lanes_for(g.columns), op, stream);
  if (g.columns % N == 0 && g.columns <= 4 * kWarp * N) return launch_by_lanes<T, N, 4>(g, kWarp, op, stream);
  const auto blocks = static_cast<unsigned>(g.rows);
  const int64_t bytes = int64_t{16} * Op::kInputs * (g.columns / N);
  if (g.columns <= 4 * 256 * N) {
    rows_by_blocks<T, 4, 256><<<blocks, 256, 0, stream>>>(g, op);
  } else if (bytes <= half_of_shared_memory()) {
    const auto kernel = rows_by_blocks<T, kInShared, kLong, Op>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
    kernel<<<blocks, kLong, static_cast<size_t>(bytes), stream>>>(g, op);
  } else {
    rows_by_blocks<T, kReadAgain, kLong><<<blocks, kLong, 0, stream>>>(g, op);
  }
  check_launch();
}

// For ops that visit a row once, or rarely have long rows.
template <typename T, typename Op>
void launch_rows_once(const Rows& g, const Op& op, cudaStream_t stream) {
  if (g.columns <= 8 * kWarp) return launch_by_lanes<T, 1, kReadAgain>(g, lanes_for(g.columns), op, stream);
  rows_by_blocks<T, kReadAgain, 256><<<static_cast<unsigned>(g.rows), 256, 0, stream>>>(g, op);
  check_launch();
}

}  // namespace plimsoll::engine::cuda
