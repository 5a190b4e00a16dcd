// Launches of the row-wise kernels. A row is the last axis of a dense tensor whose start is 16-byte aligned. If the op
// allows it, the output may have the address of the input. Losses, statistics, gamma, beta and dense targets are
// float32 whatever the element type. Sums are taken in a fixed order.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "backends/cuda/common/element.h"

namespace plimsoll::engine::cuda {

struct Rows {
  int64_t rows = 0;
  int columns = 0;
};

void launch_softmax(const Rows& g, Element element, const void* x, void* y, cudaStream_t stream);
void launch_softmax_grad(const Rows& g, Element element, const void* dy, const void* y, void* dx, cudaStream_t stream);

// gamma and beta are null if the layer has none. With `rms` the mean is taken as 0.
void launch_layer_norm(const Rows& g, Element element, float epsilon, bool rms, const void* x, const float* gamma,
                       const float* beta, void* y, float* mean, float* rstd, cudaStream_t stream);
void launch_layer_norm_input_grad(const Rows& g, Element element, bool rms, const void* dy, const void* x,
                                  const float* mean, const float* rstd, const float* gamma, void* dx,
                                  cudaStream_t stream);

// The target of a row, with label smoothing: a label, or one float per column.
struct Target {
  const int32_t* labels = nullptr;
  const float* dense = nullptr;  // used if labels is null
  float smoothing = 0;
};

void launch_softmax_cross_entropy(const Rows& g, Element element, const void* logits, const Target& target, float* loss,
                                  cudaStream_t stream);
void launch_softmax_cross_entropy_grad(const Rows& g, Element element, const float* dloss, const void* logits,
                                       const Target& target, void* dlogits, cudaStream_t stream);
void launch_cross_entropy(const Rows& g, Element element, const void* p, const Target& target, float* loss,
                          cudaStream_t stream);
void launch_cross_entropy_grad(const Rows& g, Element element, const float* dloss, const void* p, const Target& target,
                               void* dp, cudaStream_t stream);

enum class PointLoss : uint8_t { kSquared, kAbsolute, kBinaryFromLogits, kBinaryFromProbabilities };

// Element-wise losses, averaged over the row.
void launch_point_loss(const Rows& g, Element element, PointLoss kind, float smoothing, const void* x,
                       const float* target, float* loss, cudaStream_t stream);
void launch_point_loss_grad(const Rows& g, Element element, PointLoss kind, float smoothing, const float* dloss,
                            const void* x, const float* target, void* dx, cudaStream_t stream);

enum class MatchKind : uint8_t { kSparse, kCategorical, kBinary };

void launch_match(const Rows& g, Element element, MatchKind kind, float threshold, const void* x, const int32_t* labels,
                  const float* target, float* result, cudaStream_t stream);

}  // namespace plimsoll::engine::cuda
