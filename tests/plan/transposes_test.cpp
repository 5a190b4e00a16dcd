// Transposes that need not be: what lowering leaves of them, and that no number changes.
#include <gtest/gtest.h>

#include "lower/transposes.h"
#include "tests/ops/harness.h"
#include "tests/support/fake_device.h"

namespace plimsoll::engine::testing {
namespace {

std::string removed(const std::string& text) {
  const Graph graph = remove_transposes(graph_of(text));
  EXPECT_TRUE(verify(graph));
  return print(graph);
}

// Both graphs give the same outputs.
void expect_same_numbers(const std::string& text) {
  const Graph before = graph_of(text), after = remove_transposes(before);
  const auto inputs = draw_inputs(before, "normal");
  const auto wanted = run_by_reference(before, inputs), got = run_by_reference(after, inputs);
  ASSERT_EQ(before.outputs.size(), after.outputs.size());
  for (size_t i = 0; i < before.outputs.size(); ++i) {
    const Tensor &w = wanted[static_cast<size_t>(before.outputs[i])], &g = got[static_cast<size_t>(after.outputs[i])];
    EXPECT_EQ(w.type, g.type);
    EXPECT_EQ(w.values, g.values) << i;
  }
}

size_t transposes_in(const std::string& text) {
  const Graph graph = remove_transposes(graph_of(text));
  size_t count = 0;
  for (const Node& node : graph.nodes) count += node.op == "transpose" ? 1 : 0;
  return count;
}

TEST(RemoveTransposes, InversesCancelAndChainsMerge) {
  EXPECT_EQ(removed(R"(graph "g"
  %x = input f64[2,3,4,5] inputs
  %1 = transpose(%x) {perm=[0,3,1,2]} : f64[2,5,3,4] activations
  %2 = transpose(%1) {perm=[0,2,3,1]} : f64[2,3,4,5] activations
  %3 = relu(%2) : f64[2,3,4,5] activations
  output %3
)"),
            R"(graph "g"
  %x = input f64[2,3,4,5] inputs
  %3 = relu(%x) : f64[2,3,4,5] activations
  output %3
)");
  EXPECT_EQ(removed(R"(graph "g"
  %x = input f64[2,3,4] inputs
  %1 = transpose(%x) {perm=[1,0,2]} : f64[3,2,4] activations
  %2 = transpose(%1) {perm=[2,1,0]} : f64[4,2,3] activations
  output %2
)"),
            R"(graph "g"
  %x = input f64[2,3,4] inputs
  %2 = transpose(%x) {perm=[2,0,1]} : f64[4,2,3] activations
  output %2
)");
}

TEST(RemoveTransposes, WhatMovesNoElementIsAReshape) {
  EXPECT_EQ(removed(R"(graph "g"
  %x = input f64[2,1,1,5] inputs
  %1 = transpose(%x) {perm=[0,3,1,2]} : f64[2,5,1,1] activations
  output %1
)"),
            R"(graph "g"
  %x = input f64[2,1,1,5] inputs
  %1 = reshape(%x) {shape=[2,5,1,1]} : f64[2,5,1,1] activations
  output %1
)");
}

// Two channels-first layers with an activation between them.
TEST(RemoveTransposes, MovesThroughElementWiseNodesToMeetItsInverse) {
  const char* const text = R"(graph "g"
  %x = input f64[2,3,4,5] inputs
  %s = input f64[] inputs
  %1 = softmax(%x) : f64[2,3,4,5] activations
  %2 = transpose(%1) {perm=[0,3,1,2]} : f64[2,5,3,4] activations
  %3 = relu(%2) : f64[2,5,3,4] activations
  %4 = scale(%3, %s) : f64[2,5,3,4] activations
  %5 = transpose(%4) {perm=[0,2,3,1]} : f64[2,3,4,5] activations
  %6 = softmax(%5) : f64[2,3,4,5] activations
  output %6
)";
  EXPECT_EQ(removed(text), R"(graph "g"
  %x = input f64[2,3,4,5] inputs
  %s = input f64[] inputs
  %1 = softmax(%x) : f64[2,3,4,5] activations
  %3 = relu(%1) : f64[2,3,4,5] activations
  %4 = scale(%3, %s) : f64[2,3,4,5] activations
  %6 = softmax(%4) : f64[2,3,4,5] activations
  output %6
)");
  expect_same_numbers(text);
}

// A residual connection and a concatenation along the channels, channels first.
constexpr const char* kBranches = R"(graph "g"
  %x = input f64[2,3,4,5] inputs
  %a = softmax(%x) : f64[2,3,4,5] activations
  %b = softmax(%a) : f64[2,3,4,5] activations
  %1 = transpose(%a) {perm=[0,3,1,2]} : f64[2,5,3,4] activations
  %2 = transpose(%b) {perm=[0,3,1,2]} : f64[2,5,3,4] activations
  %3 = add(%1, %2) : f64[2,5,3,4] activations
  %4 = relu(%3) : f64[2,5,3,4] activations
  %5 = concat(%4, %1) {axis=1} : f64[2,10,3,4] activations
  %6 = slice(%5) {axis=1, begin=2, size=6} : f64[2,6,3,4] activations
  %7 = transpose(%6) {perm=[0,2,3,1]} : f64[2,3,4,6] activations
  %8 = softmax(%7) : f64[2,3,4,6] activations
  output %8
)";

TEST(RemoveTransposes, TurnsWholeRegions) {
  EXPECT_EQ(transposes_in(kBranches), 0);
  expect_same_numbers(kBranches);
}

TEST(RemoveTransposes, LeavesWhatWouldCostMore) {
  // Only one of the two inputs is transposed, and nothing behind them is.
  const std::string one_side = R"(graph "g"
  %x = input f64[2,3,4] inputs
  %y = input f64[2,4,3] inputs
  %1 = transpose(%x) {perm=[0,2,1]} : f64[2,4,3] activations
  %2 = add(%1, %y) : f64[2,4,3] activations
  output %2
)";
  EXPECT_EQ(removed(one_side), one_side);
  // A channel vector belongs to the last dimension, and random numbers to the position of an element.
  for (const char* node : {"%2 = bias_add(%1, %b) : f64[2,4,3] activations",
                           "%2 = dropout(%1, %r, %f) {call=0, rate=0.5} : f64[2,4,3] activations"})
    EXPECT_EQ(transposes_in(fmt::format(R"(graph "g"
  %x = input f64[2,3,4] inputs
  %b = input f64[3] weights
  %r = input i64[2] inputs
  %f = input i64[1] inputs
  %1 = transpose(%x) {{perm=[0,2,1]}} : f64[2,4,3] activations
  {}
  %3 = transpose(%2) {{perm=[0,2,1]}} : f64[2,3,4] activations
  output %3
)",
                                        node)),
              2U);
}

// A value that others read too is transposed for them alone.
TEST(RemoveTransposes, OtherReadersKeepTheirOrder) {
  const char* const text = R"(graph "g"
  %x = input f64[2,3,4,5] inputs
  %1 = transpose(%x) {perm=[0,3,1,2]} : f64[2,5,3,4] activations
  %2 = relu(%1) : f64[2,5,3,4] activations
  %3 = transpose(%2) {perm=[0,2,3,1]} : f64[2,3,4,5] activations
  %4 = softmax(%3) : f64[2,3,4,5] activations
  output %2
  output %4
)";
  EXPECT_EQ(transposes_in(text), 1U);
  expect_same_numbers(text);
}

}  // namespace
}  // namespace plimsoll::engine::testing
