// Splits the long sum of a weight gradient (and of its bias gradient) into slices whose number does not depend on the
// number of threads. Each slice has its own buffer of partial sums; the buffers are then added in order.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cpu/parallel.h"
#include "base/bytes.h"

namespace plimsoll::engine::cpu {

struct GradientPlace {
  float* weights;
  float* bias;  // or null
};

struct Slices {
  int64_t count, terms, weights, bias;
  int threads;

  int64_t elements() const { return weights + bias; }
  Bytes workspace() const { return 4 * count * elements(); }

  // Calls add(first term, last term, partial weight gradient, partial bias gradient, thread) for each slice.
  template <typename Add>
  void sum(float* workspace, const GradientPlace& place, const Add& add) const {
    parallel_items(threads, count, [&](int64_t slice, int thread) {
      float* sums = workspace + slice * elements();
      std::fill_n(sums, elements(), 0.0F);
      add(terms * slice / count, terms * (slice + 1) / count, sums, sums + weights, thread);
    });
    parallel_ranges(threads, elements(), 16384, [&](int64_t begin, int64_t end) {
      for (int64_t slice = 1; slice < count; ++slice)
        for (int64_t i = begin; i < end; ++i) workspace[i] += workspace[slice * elements() + i];
    });
    std::copy_n(workspace, weights, place.weights);
    if (place.bias != nullptr) std::copy_n(workspace + weights, bias, place.bias);
  }
};

inline Slices make_slices(int64_t terms, int64_t weights, int64_t bias, int threads) {
  constexpr Bytes kMostPartials = 2 * kMiB;
  constexpr int64_t kMost = 16, kLeast = 4;
  const int64_t fitting = std::max(kLeast, kMostPartials / (4 * (weights + bias)));
  return {std::min({fitting, kMost, terms}), terms, weights, bias, threads};
}

}  // namespace plimsoll::engine::cpu
