// Random numbers of a layer's call in training. They depend on the run's seed, the step, the call and the sample, so
// neither micro-batches nor recomputation change them.
#pragma once

#include <string>
#include <vector>

#include "model/layer.h"

namespace plimsoll::engine {

// Numbers of op random_uniform or random_normal in the given shape, whose first dimension is the batch. If the batch
// shares its numbers, all samples take those of sample 0. `stream` tells several draws of one call apart.
ValueId random_numbers(const BuildCall& call, const std::string& op, std::vector<int64_t> dims, DType dtype,
                       bool shared_by_batch = false, int64_t stream = 0);

// The layers that change images at random, and the others that prepare images.
std::span<const LayerClass> preprocessing_layers();

// One uniform number in [low, high) per sample, in the shape of x.
ValueId uniform_per_sample(const BuildCall& call, ValueId x, double low, double high, int64_t stream = 0);

}  // namespace plimsoll::engine
