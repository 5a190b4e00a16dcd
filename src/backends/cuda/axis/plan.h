// How a reduction over any axes is cut into steps, and the workspace they need: a rule on shapes, shared by offers and
// binders.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "backends/cuda/axis/steps.h"
#include "ops/strided.h"

namespace plimsoll::engine::cuda {

// One reduced axis after the other, the innermost first. Intermediate results are float32 in the workspace.
struct AxisReduction {
  std::vector<AxisStep> steps;
  Bytes workspace = 0;
};

inline AxisReduction plan_axis_reduction(const Shape& x, const Shape& y) {
  constexpr int64_t kFewResults = 1024, kRowsWorthAPart = 2048, kMostParts = 256;
  AxisReduction plan;
  const auto add = [&](int64_t outer, int64_t rows, int64_t columns, int64_t parts) {
    AxisStep step{outer, rows, columns};
    step.part_rows = (rows + parts - 1) / parts;
    step.parts = (rows + step.part_rows - 1) / step.part_rows;
    if (!plan.steps.empty()) {
      step.from = plan.workspace;
      plan.steps.back().to = step.from;
      plan.workspace += align_up(outer * rows * columns * static_cast<Bytes>(sizeof(float)));
    }
    plan.steps.push_back(step);
  };
  const auto groups = reduced_axes(x, y).groups;
  int64_t columns = 1;
  for (size_t i = groups.size(); i-- > 0;) {
    if (!groups[i].reduced) {
      columns *= groups[i].extent;
      continue;
    }
    int64_t outer = 1;
    for (size_t j = 0; j < i; ++j) outer *= groups[j].extent;
    const int64_t rows = groups[i].extent;
    const int64_t parts =
        outer * columns >= kFewResults ? 1 : std::clamp<int64_t>(rows / kRowsWorthAPart, 1, kMostParts);
    add(outer, rows, columns, parts);
    if (parts > 1) add(outer, plan.steps.back().parts, columns, 1);
  }
  if (plan.steps.empty()) add(1, 1, columns, 1);
  return plan;
}

}  // namespace plimsoll::engine::cuda
