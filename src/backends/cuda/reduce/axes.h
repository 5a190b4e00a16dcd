// reduce_to as a sequence of sums over one axis each, and the workspace they need.
#pragma once

#include <vector>

#include "backends/cuda/reduce/pieces.h"
#include "base/tensor.h"

namespace plimsoll::engine::cuda {

// The innermost axis first. Intermediate results are float32 in the workspace.
struct Reduction {
  struct Step {
    int64_t outer = 1, rows = 1, columns = 1;
    Bytes from = -1, to = -1;  // offsets in the workspace; -1 means the node's own input or output
  };
  std::vector<Step> steps;
  Bytes partials = 0;  // offset of the partial sums
  Bytes workspace = 0;
};

inline Reduction plan_reduction(const Shape& x, const Shape& y, Bytes element_bytes) {
  struct Axis {
    int64_t size;
    bool kept;
  };
  std::vector<Axis> axes;  // adjacent axes of the same kind are merged; axes of size 1 are left out
  const size_t shift = x.rank() - y.rank();
  for (size_t i = 0; i < x.rank(); ++i) {
    if (x[i] == 1) continue;
    const bool kept = i >= shift && y[i - shift] != 1;
    if (!axes.empty() && axes.back().kept == kept)
      axes.back().size *= x[i];
    else
      axes.push_back({x[i], kept});
  }
  Reduction plan;
  Bytes most_partials = 0;
  const auto add_step = [&](int64_t outer, int64_t rows, int64_t columns) {
    Reduction::Step step{outer, rows, columns};
    if (!plan.steps.empty()) {
      step.from = plan.workspace;
      plan.steps.back().to = step.from;
      plan.workspace += align_up(outer * rows * columns * static_cast<Bytes>(sizeof(float)));
    }
    const Bytes bytes = plan.steps.empty() ? element_bytes : static_cast<Bytes>(sizeof(float));
    const Bytes partials = outer == 1 && columns == 1 ? total_sum_bytes(rows)
                                                      : plan_column_sums(outer, rows, columns, bytes).partials() *
                                                            static_cast<Bytes>(sizeof(float));
    most_partials = std::max(most_partials, partials);
    plan.steps.push_back(step);
  };
  int64_t columns = 1;
  for (size_t i = axes.size(); i-- > 0;) {
    if (axes[i].kept) {
      columns *= axes[i].size;
      continue;
    }
    int64_t outer = 1;
    for (size_t j = 0; j < i; ++j) outer *= axes[j].size;
    add_step(outer, axes[i].size, columns);
  }
  if (plan.steps.empty()) add_step(1, 1, columns);
  plan.partials = plan.workspace;
  plan.workspace += align_up(most_partials);
  return plan;
}

}  // namespace plimsoll::engine::cuda
