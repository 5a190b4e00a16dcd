// resample and adaptive_max_pool along one dimension, and their gradients. A tensor is [outer, size, inner] around that
// dimension; loops run over `inner`. Every element of a result is written once, so nothing depends on the threads.
#include <algorithm>
#include <memory>

#include "backends/cpu/parallel.h"
#include "backends/cpu/recipe.h"
#include "ops/resample.h"

namespace plimsoll::engine::cpu {

namespace {

constexpr int64_t kGrain = 16384;

struct Lines {
  int64_t outer = 1, from = 1, to = 1, inner = 1;

  Lines(const Problem& p, int64_t axis) {
    const Shape &x = p.in_shape(0), &y = p.out_shape(0);
    for (int64_t d = 0; d < axis; ++d) outer *= x[static_cast<size_t>(d)];
    for (size_t d = static_cast<size_t>(axis) + 1; d < x.rank(); ++d) inner *= x[d];
    from = x[static_cast<size_t>(axis)];
    to = y[static_cast<size_t>(axis)];
  }
  int64_t grain() const { return 1 + kGrain / inner; }
};

void weighted_row(const Lines& l, const ResampleTable& table, const float* x, float* y, int64_t row) {
  const auto i = static_cast<size_t>(row % l.to);
  const float* from = x + (row / l.to * l.from + table.begin[i]) * l.inner;
  float* to = y + row * l.inner;
  const float* weight = table.weights.data() + table.first[i];
  const int64_t taps = table.taps(row % l.to);
  std::fill_n(to, l.inner, 0.0F);
  for (int64_t tap = 0; tap < taps; ++tap, from += l.inner) {
    const float w = weight[tap];
#pragma omp simd
    for (int64_t c = 0; c < l.inner; ++c) to[c] += w * from[c];
  }
}

void max_row(const Lines& l, const float* x, float* y, int32_t* index, int64_t row) {
  const AdaptiveWindow window = adaptive_window(row % l.to, l.from, l.to);
  const float* from = x + row / l.to * l.from * l.inner;
  float* to = y + row * l.inner;
  int32_t* at = index + row * l.inner;
  std::copy_n(from + window.begin * l.inner, l.inner, to);
  std::fill_n(at, l.inner, static_cast<int32_t>(window.begin));
  for (int64_t i = window.begin + 1; i < window.end; ++i) {
    const float* here = from + i * l.inner;
#pragma omp simd
    for (int64_t c = 0; c < l.inner; ++c) {
      const bool wins = here[c] > to[c];
      at[c] = wins ? static_cast<int32_t>(i) : at[c];
      to[c] = wins ? here[c] : to[c];
    }
  }
}

// `covering` names the windows over each position of dx.
void max_grad_row(const Lines& l, const ResampleTable& covering, const float* dy, const int32_t* index, float* dx,
                  int64_t row) {
  const auto position = static_cast<int32_t>(row % l.to);
  const int64_t first = covering.begin[static_cast<size_t>(position)], windows = covering.taps(position);
  float* to = dx + row * l.inner;
  std::fill_n(to, l.inner, 0.0F);
  for (int64_t o = first; o < first + windows; ++o) {
    const int64_t at = (row / l.to * l.from + o) * l.inner;
#pragma omp simd
    for (int64_t c = 0; c < l.inner; ++c) to[c] += index[at + c] == position ? dy[at + c] : 0.0F;
  }
}

}  // namespace

Result<Recipe> resample_recipe(const Problem& p) {
  const std::string& op = p.node.op;
  const bool grad = op.ends_with("_grad"), max = op.starts_with("adaptive_max");
  const Lines l(p, p.attrs().integer("axis"));
  const int threads = p.machine.threads;
  const double seconds = p.machine.seconds(0, 1, 2 * p.traffic());
  return own_recipe(op, 0, seconds, [=, method = max ? "average" : p.attrs().text("method")](const BoundNode& node) {
    const auto forward = std::make_shared<const ResampleTable>(grad ? resample_table(method, l.to, l.from)
                                                                    : resample_table(method, l.from, l.to));
    const auto table = grad ? std::make_shared<const ResampleTable>(transposed(*forward, l.to)) : forward;
    const auto* x = input<const float>(node, 0);
    auto* y = output<float>(node, 0);
    const auto* given = max && grad ? input<const int32_t>(node, 1) : nullptr;
    auto* found = max && !grad ? output<int32_t>(node, 1) : nullptr;
    return [=] {
      parallel_ranges(threads, l.outer * l.to, l.grain(), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          if (!max) {
            weighted_row(l, *table, x, y, row);
          } else if (grad) {
            max_grad_row(l, *table, x, given, y, row);
          } else {
            max_row(l, x, y, found, row);
          }
        }
      });
    };
  });
}

}  // namespace plimsoll::engine::cpu
