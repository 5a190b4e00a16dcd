// Loss scaling: counts the non-finite elements of all gradients, and updates the scale, step count and skip count on
// the device (loss_scale/launch.h).
#include "backends/cuda/loss_scale/launch.h"

#include "backends/cuda/reduce/column_sums.cuh"

namespace plimsoll::engine::cuda {

namespace {

// This thread's count over its share of block `block` of `blocks`.
template <typename T>
__device__ unsigned count_share(const T* x, int64_t elements, int block, int blocks) {
  constexpr int N = kPack<T>;
  const int64_t step = static_cast<int64_t>(blocks) * kSumThreads * N;
  int64_t at = (static_cast<int64_t>(block) * kSumThreads + threadIdx.x) * N;
  unsigned count = 0;
#pragma unroll 4
  for (; at + N <= elements; at += step) {
    const auto pack = load_pack<N>(x + at);
#pragma unroll
    for (int k = 0; k < N; ++k) count += isfinite(to_float(pack.v[k])) ? 0U : 1U;
  }
  for (; at < elements; ++at) count += isfinite(to_float(x[at])) ? 0U : 1U;  // the remainder of the last pack
  return count;
}

__global__ void __launch_bounds__(kSumThreads)
    count_not_finite(const __grid_constant__ CountTable table, unsigned* counts, const unsigned* every, int64_t all,
                     float* to, unsigned* counter) {
  __shared__ unsigned scratch[kWarp];
  __shared__ double wide_scratch[kWarp];
  const int here = static_cast<int>(blockIdx.x);
  int t = 0;
  for (int half = CountTable::kMost / 2; half > 0; half /= 2)
    if (t + half < table.tensors && table.of[t + half].first <= here) t += half;
  const CountTable::Tensor& tensor = table.of[t];
  const int end = t + 1 < table.tensors ? table.of[t + 1].first : table.blocks;
  const int block = here - tensor.first, blocks = end - tensor.first;
  unsigned count = 0;
  if (tensor.element == Element::kF32)
    count = count_share(static_cast<const float*>(tensor.data), tensor.elements, block, blocks);
  else if (tensor.element == Element::kF16)
    count = count_share(static_cast<const __half*>(tensor.data), tensor.elements, block, blocks);
  else
    count = count_share(static_cast<const __nv_bfloat16*>(tensor.data), tensor.elements, block, blocks);
  count = block_sum(count, scratch);
  if (threadIdx.x == 0) counts[here] = count;
  if (all == 0 || !is_last_block(counter, gridDim.x)) return;
  double sum = 0;
  for (int64_t i = threadIdx.x; i < all; i += kSumThreads) sum += __ldcg(every + i);
  sum = block_sum(sum, wide_scratch);
  if (threadIdx.x == 0) *to = static_cast<float>(sum);
}

__global__ void next_loss_scale(LossScaleStep step) {
  const float scale = *step.scale;
  const int64_t steps = *step.steps, skipped = *step.skipped;
  const bool bad = *step.bad != 0.0F, grows = !bad && steps == step.growth_steps - 1;
  *step.new_scale = bad ? scale * 0.5F : grows ? scale * 2.0F : scale;
  *step.new_steps = bad || grows ? 0 : steps + 1;
  *step.new_skipped = skipped + (bad ? 1 : 0);
}

__global__ void applied_updates(const int64_t* iteration, const int64_t* skipped, int64_t* to) {
  *to = *iteration - *skipped;
}

__global__ void count_periods(const int64_t* count, int64_t period, int64_t* periods, float* pending) {
  const int64_t at = *count;
  const bool whole = at % period == 0;
  *pending = whole ? 0.0F : 1.0F;
  *periods = at / period + (whole ? 0 : 1);
}

__global__ void scheduled_rate(const float* rate, const float* other, const int64_t* skipped, const int64_t* known,
                               float* to) {
  *to = *skipped == *known ? *rate : *other;
}

}  // namespace

void launch_count_not_finite(const CountTable& table, unsigned* counts, const unsigned* every, int64_t all, float* to,
                             unsigned* counter, cudaStream_t stream) {
  count_not_finite<<<static_cast<unsigned>(table.blocks), kSumThreads, 0, stream>>>(table, counts, every, all, to,
                                                                                    counter);
  check_launch();
}

void launch_loss_scale(const LossScaleStep& step, cudaStream_t stream) {
  next_loss_scale<<<1, 1, 0, stream>>>(step);
  check_launch();
}

void launch_applied_updates(const int64_t* iteration, const int64_t* skipped, int64_t* to, cudaStream_t stream) {
  applied_updates<<<1, 1, 0, stream>>>(iteration, skipped, to);
  check_launch();
}

void launch_count_periods(const int64_t* count, int64_t period, int64_t* periods, float* pending, cudaStream_t stream) {
  count_periods<<<1, 1, 0, stream>>>(count, period, periods, pending);
  check_launch();
}

void launch_scheduled_rate(const float* rate, const float* other, const int64_t* skipped, const int64_t* known,
                           float* to, cudaStream_t stream) {
  scheduled_rate<<<1, 1, 0, stream>>>(rate, other, skipped, known, to);
  check_launch();
}

}  // namespace plimsoll::engine::cuda
