// Launches of reads and sums by index. Ids out of range read `missing` and add to nothing.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "backends/cuda/common/element.h"

namespace plimsoll::engine::cuda {

// A tensor [outer, size, inner] that is indexed along its middle axis.
struct IndexedAxis {
  int64_t outer = 1, size = 1, inner = 1;
};

// y[outer, ids, inner] = x[outer, ids[i], inner]
void launch_gather(const IndexedAxis& x, int64_t count, int element_bytes, uint64_t missing, const void* from,
                   const int32_t* ids, void* to, cudaStream_t stream);
// y[o, k, i] = x[o, ids[o, k, i], i]; `count` is the extent of k.
void launch_take(const IndexedAxis& x, int64_t count, int element_bytes, uint64_t missing, const void* from,
                 const int32_t* ids, void* to, cudaStream_t stream);
// dx[o, ids[o, k, i], i] += dy[o, k, i], in the order of k. dx is float32 and was zeroed.
void launch_take_grad(const IndexedAxis& dx, int64_t count, Element element, const void* dy, const int32_t* ids,
                      float* to, cudaStream_t stream);
// expanded[o, i] = ids[i] + o * size; -1 for an id out of range.
void launch_expand_ids(const IndexedAxis& y, int64_t count, const int32_t* ids, int32_t* expanded, cudaStream_t stream);
void launch_iota(const IndexedAxis& y, bool integers, Element element, void* to, cudaStream_t stream);
void launch_one_hot(int64_t count, int64_t depth, const int32_t* ids, Element element, void* to, cudaStream_t stream);

}  // namespace plimsoll::engine::cuda
