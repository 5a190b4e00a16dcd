// Compares what two graphs compute, with the ops' references in float64.
#pragma once

#include <gtest/gtest.h>

#include "tests/ops/harness.h"

namespace plimsoll::engine::testing {

// Returns the largest difference, relative to the largest number. NaNs and infinities must be at the same places, and
// integers must be equal.
inline double difference(const Tensor& got, const Tensor& want) {
  if (got.type != want.type || got.values.size() != want.values.size()) return INFINITY;
  double most = 0, scale = 0;
  for (size_t i = 0; i < want.values.size(); ++i) {
    const double a = got.values[i], b = want.values[i];
    if (std::isnan(a) && std::isnan(b)) continue;
    if (a != b) most = std::isfinite(a - b) ? std::max(most, std::abs(a - b)) : INFINITY;
    if (std::isfinite(b)) scale = std::max(scale, std::abs(b));
  }
  return most == 0 ? 0 : is_floating(want.type.dtype) ? most / scale : INFINITY;
}

// Compares the outputs and updates of a graph with those of a rewritten one, which has the same inputs.
inline void expect_same_numbers(const std::string& what, const Graph& graph, const Graph& rewritten,
                                const std::vector<Tensor>& inputs, double bound) {
  const auto want = run_by_reference(graph, inputs), got = run_by_reference(rewritten, inputs);
  const auto same = [&](ValueId a, ValueId b) {
    EXPECT_LE(difference(got[static_cast<size_t>(b)], want[static_cast<size_t>(a)]), bound)
        << what << ": " << graph.value(a).name;
  };
  for (size_t i = 0; i < graph.outputs.size(); ++i) same(graph.outputs[i], rewritten.outputs[i]);
  for (size_t i = 0; i < graph.updates.size(); ++i) same(graph.updates[i].value, rewritten.updates[i].value);
}

}  // namespace plimsoll::engine::testing
