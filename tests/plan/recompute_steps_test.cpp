// The lever recompute-steps: the same numbers from checkpoints, and bytes that grow with the root of the steps.
#include "levers/recompute_steps.h"

#include <gtest/gtest.h>

#include "autodiff/gradient.h"
#include "graph/rewrite.h"
#include "tests/ops/harness.h"

namespace plimsoll::engine::testing {
namespace {

// Two loops, the second on the outputs of the first, with the gradients of all weights as outputs.
Graph two_loops(int64_t steps, const char* cell, bool masked) {
  GraphBuilder b = make_builder();
  const int64_t n = 2, d = 3, u = 4,
                wide = (cell == std::string("lstm")     ? 4
                        : cell == std::string("simple") ? 1
                                                        : 3) *
                       u;
  const auto input = [&](const char* name, std::vector<int64_t> dims) {
    return b.input(name, {DType::kFloat64, Shape(std::move(dims))}, Category::kInputs, false);
  };
  const ValueId x = input("x", {n, steps, d}), zero = input("h", {n, u}), mask = input("mask", {n, steps});
  std::vector<ValueId> weights;
  ValueId y = x;
  for (const int64_t size : {d, u}) {
    weights.push_back(input(size == d ? "w1" : "w2", {size, wide}));
    weights.push_back(input(size == d ? "u1" : "u2", {u, wide}));
    std::vector<ValueId> inputs{y, weights[weights.size() - 2], weights.back(), zero};
    if (cell == std::string("lstm")) inputs.push_back(zero);
    if (masked) inputs.push_back(mask);
    y = b.add("recurrent", inputs,
              {{"cell", std::string(cell)},
               {"activation", std::string("tanh")},
               {"sequences", size == d},
               {"saves", true},
               {"mask", masked}})[0];
  }
  const ValueId loss = b.add1("l1_l2_penalty", {y}, {{"l1", 0.0}, {"l2", 1.0}});
  const std::vector<ValueId> gradients = append_gradients(b, loss, weights);
  for (const ValueId id : gradients) b.output(id);
  EXPECT_TRUE(b.status());
  return b.take();
}

std::vector<Tensor> outputs_of(const Graph& graph) {
  const auto values = run_by_reference(graph, draw_inputs(graph, "uniform"));
  std::vector<Tensor> outputs;
  for (const ValueId id : graph.outputs) outputs.push_back(values[static_cast<size_t>(id)]);
  return outputs;
}

TEST(RecomputeSteps, GivesTheGradientsOfTheWholeLoop) {
  for (const char* cell : {"lstm", "gru", "gru_reset_before", "simple"})
    for (const bool masked : {false, true}) {
      const Graph graph = two_loops(23, cell, masked);
      const Rewritten made = recompute_steps(graph);
      EXPECT_EQ(made.count, 2) << cell;
      const Status status = verify(made.graph);
      ASSERT_TRUE(status) << to_text(status.error());
      const auto wanted = outputs_of(graph), got = outputs_of(made.graph);
      ASSERT_EQ(got.size(), wanted.size());
      for (size_t i = 0; i < got.size(); ++i) EXPECT_LE(error_in_units(got[i], wanted[i]), 1e-3) << cell << i;
    }
}

Bytes between_the_passes(const Graph& graph) {
  Bytes bytes = 0;
  for (const Node& node : graph.nodes)
    for (const ValueId id : node.outputs)
      if (node.op == "recurrent") bytes += graph.type(id).bytes();
  return bytes;
}

TEST(RecomputeSteps, KeepsTheRootOfTheSteps) {
  const Bytes short_loop = between_the_passes(recompute_steps(two_loops(1024, "lstm", false)).graph),
              long_loop = between_the_passes(recompute_steps(two_loops(4096, "lstm", false)).graph);
  const Bytes outputs = 2 * 3072 * 4 * 8;  // of the first loop, which are the second's input
  EXPECT_LE(long_loop - outputs, short_loop * 2);
}

TEST(RecomputeSteps, LeavesOtherGraphsAlone) {
  Graph graph = two_loops(2, "lstm", false);  // too short to gain anything
  const std::string text = print(graph);
  const Rewritten made = recompute_steps(std::move(graph));
  EXPECT_EQ(made.count, 0);
  EXPECT_EQ(print(made.graph), text);
}

}  // namespace
}  // namespace plimsoll::engine::testing
