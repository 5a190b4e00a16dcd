// Distributes work over OpenMP threads. The result of a work item does not depend on which thread runs it or on how
// many threads there are.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace plimsoll::engine::cpu {

// Calls f(item, thread) for every item in [0, items).
template <typename F>
void parallel_items(int threads, int64_t items, const F& f) {
  if (threads == 1 || items == 1) {
    for (int64_t item = 0; item < items; ++item) f(item, 0);
    return;
  }
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
  for (int64_t item = 0; item < items; ++item) f(item, omp_get_thread_num());
}

// Calls f(begin, end) over [0, count) in pieces of at least `grain`. There are several pieces per thread so that one
// slow piece does not delay the others. Use it only for work whose result does not depend on where the range is cut.
template <typename F>
void parallel_ranges(int threads, int64_t count, int64_t grain, const F& f) {
  const int64_t pieces = std::clamp<int64_t>(count / std::max<int64_t>(1, grain), 1, int64_t{8} * threads);
  parallel_items(threads, pieces, [&](int64_t piece, int) { f(count * piece / pieces, count * (piece + 1) / pieces); });
}

}  // namespace plimsoll::engine::cpu
