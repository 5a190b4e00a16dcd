// embedding copies the rows named by the ids; its gradient stores the sums of row_sums.cuh. Layouts and special ids are
// described in launch.h.
#include "backends/cuda/embedding/launch.h"

#include <type_traits>

#include "backends/cuda/embedding/row_sums.cuh"

namespace plimsoll::engine::cuda {

namespace {

constexpr int kThreads = 256;

template <typename From, typename To, int N>
__global__ void __launch_bounds__(kThreads)
    gather_rows(int64_t tokens, int64_t rows, int packs, int lanes, const From* __restrict__ table,
                const int32_t* __restrict__ ids, To* __restrict__ y) {
  const int64_t token = static_cast<int64_t>(blockIdx.x) * (kThreads / lanes) + static_cast<int>(threadIdx.x) / lanes;
  if (token >= tokens) return;
  const int64_t id = ids[token];
  const bool there = id >= 0 && id < rows;
  const From* from = table + (there ? id : 0) * packs * N;
  To* to = y + token * packs * N;
#pragma unroll 4
  for (int p = static_cast<int>(threadIdx.x) % lanes; p < packs; p += lanes) {
    const auto pack = load_pack<N>(from + p * N);
    Pack<To, N> result;
#pragma unroll
    for (int k = 0; k < N; ++k) result.v[k] = from_float<To>(there ? to_float(pack.v[k]) : NAN);
    store_pack(to + p * N, result);
  }
}

template <typename To>
struct StoreGradient {
  static constexpr bool kMayLeaveRows = false;
  To* dtable;

  struct Held {};
  __device__ void prepare() const {}
  template <int N>
  __device__ Held load(int64_t /*at*/) const {
    return {};
  }
  template <int N>
  __device__ void store(int64_t at, const float (&sums)[N], Held& /*held*/) const {
    Pack<To, N> result;
#pragma unroll
    for (int k = 0; k < N; ++k) result.v[k] = from_float<To>(sums[k]);
    store_pack(dtable + at, result);
  }
};

// Calls f.operator()<From, To>(). Either one of them is float32, or both are the same.
template <typename F>
void with_elements(Element from, Element to, F f) {
  with_element(from, [&]<typename From>() {
    with_element(to, [&]<typename To>() {
      constexpr bool kGoes = std::is_same_v<From, To> || std::is_same_v<From, float> || std::is_same_v<To, float>;
      if constexpr (kGoes) f.template operator()<From, To>();
    });
  });
}

}  // namespace

void launch_embedding(int64_t tokens, int64_t rows, int width, Element table_element, const void* table,
                      const int32_t* ids, Element element, void* y, cudaStream_t stream) {
  with_elements(table_element, element, [&]<typename From, typename To>() {
    const auto launch = [&]<int N>() {
      const int packs = width / N, lanes = lanes_for_packs(packs, kThreads);
      gather_rows<From, To, N><<<blocks_for(tokens, kThreads / lanes), kThreads, 0, stream>>>(
          tokens, rows, packs, lanes, static_cast<const From*>(table), ids, static_cast<To*>(y));
    };
    if (width % kPack<To> == 0)
      launch.template operator()<kPack<To>>();
    else
      launch.template operator()<1>();
  });
  check_launch();
}

void launch_embedding_grad(const EmbeddingGrad& plan, Element element, const void* dy, const int32_t* ids,
                           Element table_element, void* dtable, void* workspace, cudaStream_t stream) {
  with_elements(element, table_element, [&]<typename T, typename To>() {
    launch_row_sums(plan, static_cast<const T*>(dy), ids, false, StoreGradient<To>{static_cast<To*>(dtable)}, workspace,
                    stream);
  });
}

}  // namespace plimsoll::engine::cuda
