// Every op on every case: its shape rule accepts the inputs, its gradient rule agrees with finite differences, and its
// reference may overwrite the inputs that `in_place` lists.
#include <gtest/gtest.h>

#include <set>

#include "backends/reference/reference.h"
#include "tests/ops/harness.h"

namespace plimsoll::engine::testing {
namespace {

struct OpAndCase {
  const OpDef* op;
  OpCase one;
};

std::vector<OpAndCase> every_case() {
  std::vector<OpAndCase> list;
  for (const OpDef& op : all_ops())
    for (const OpCase& one : op.cases) list.push_back({&op, one});
  return list;
}

std::string case_name(const ::testing::TestParamInfo<OpAndCase>& info) {
  return info.param.op->name + "_" + info.param.one.name;
}

std::vector<OpAndCase> every_differentiable_case() {
  auto list = every_case();
  std::erase_if(list, [](const OpAndCase& c) { return c.one.differentiate.empty(); });
  return list;
}

class EveryOp : public ::testing::TestWithParam<OpAndCase> {};
class EveryGradient : public ::testing::TestWithParam<OpAndCase> {};

TEST_P(EveryOp, CaseIsComplete) {
  const auto& [op, one] = GetParam();
  EXPECT_EQ(one.inputs.size(), one.fill.size());
  for (size_t i : one.differentiate) ASSERT_LT(i, one.inputs.size());
  EXPECT_TRUE(one.differentiate.empty() || op->gradient);
}

TEST_P(EveryOp, GraphVerifiesInBothPrecisions) {
  const auto& [op, one] = GetParam();
  for (DType floating : {DType::kFloat32, DType::kFloat64}) {
    const auto made = graph_of(*op, one, floating);
    ASSERT_TRUE(made) << to_text(made.error());
    const Status status = verify(made->graph);
    EXPECT_TRUE(status) << to_text(status.error());
  }
}

TEST_P(EveryOp, TextRoundTrips) {
  const auto& [op, one] = GetParam();
  const auto made = graph_of(*op, one, DType::kFloat32);
  ASSERT_TRUE(made);
  const std::string text = print(made->graph);
  const auto again = parse_graph(text);
  ASSERT_TRUE(again) << to_text(again.error()) << text;
  EXPECT_EQ(print(*again), text);
  EXPECT_TRUE(verify(*again));
}

// Returns the elements for which a finite difference is computed: all of a small tensor, some of a large one.
std::vector<size_t> probes(size_t elements, std::mt19937_64& random) {
  std::vector<size_t> list;
  if (elements <= 96)
    for (size_t i = 0; i < elements; ++i) list.push_back(i);
  else
    for (size_t i = 0; i < 64; ++i) list.push_back(random() % elements);
  return list;
}

TEST_P(EveryGradient, AgreesWithFiniteDifferences) {
  const auto& [op, one] = GetParam();
  const auto made = graph_of(*op, one, DType::kFloat64);
  ASSERT_TRUE(made) << to_text(made.error());
  std::vector<Tensor> inputs = draw_inputs(*op, one, DType::kFloat64);
  std::mt19937_64 random(7);
  const Tensor dy = draw(made->graph.type(made->dy), "normal", random);
  const auto loss = [&] {
    const auto y = reference_outputs(made->graph, made->graph.nodes[0], inputs)[0];
    double sum = 0;
    for (size_t i = 0; i < y.values.size(); ++i) sum += y.values[i] * dy.values[i];
    return sum;
  };
  auto with_dy = inputs;
  with_dy.push_back(dy);
  const auto values = run_by_reference(made->graph, with_dy);
  constexpr double kStep = 1e-5, kTolerance = 1e-6;
  for (size_t input : one.differentiate) {
    ASSERT_NE(made->gradients[input], kNone) << "no gradient for input " << input;
    const Tensor& gradient = values[static_cast<size_t>(made->gradients[input])];
    ASSERT_EQ(gradient.type, inputs[input].type);
    double most = 1e-3, worst = 0;
    for (double v : gradient.values) most = std::max(most, std::fabs(v));
    for (size_t i : probes(gradient.values.size(), random)) {
      const double x = inputs[input].values[i];
      inputs[input].values[i] = x + kStep;
      const double above = loss();
      inputs[input].values[i] = x - kStep;
      const double below = loss();
      inputs[input].values[i] = x;
      worst = std::max(worst, std::fabs((above - below) / (2 * kStep) - gradient.values[i]));
    }
    EXPECT_LE(worst, kTolerance * most) << "input " << input << ", largest gradient " << most;
  }
}

TEST_P(EveryOp, ReferenceMayWriteOverItsInputs) {
  const auto& [op, one] = GetParam();
  const auto made = graph_of(*op, one, DType::kFloat64);
  ASSERT_TRUE(made);
  const auto backend = make_reference_backend();
  const auto inputs = draw_inputs(*op, one, DType::kFloat64);
  const Node& node = made->graph.nodes[0];
  const auto wanted = reference_outputs(made->graph, node, inputs);
  for (const InPlace& pair : op->in_place) {
    if (pair.input >= node.inputs.size() || pair.output >= node.outputs.size()) continue;
    if (made->graph.type(node.inputs[pair.input]).bytes() != made->graph.type(node.outputs[pair.output]).bytes())
      continue;
    const auto run = run_on_backend(*backend, made->graph, node, inputs, &pair);
    ASSERT_TRUE(run) << to_text(run.error());
    EXPECT_EQ(run->damage, "");
    for (size_t i = 0; i < wanted.size(); ++i)
      EXPECT_EQ(run->outputs[i].values, wanted[i].values)
          << "output " << i << " with " << pair.output << " over " << pair.input;
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, EveryOp, ::testing::ValuesIn(every_case()), case_name);
INSTANTIATE_TEST_SUITE_P(Ops, EveryGradient, ::testing::ValuesIn(every_differentiable_case()), case_name);

TEST(Ops, EachHasCasesAReferenceAndAShapeRule) {
  std::set<std::string> names;
  for (const OpDef& op : all_ops()) {
    EXPECT_TRUE(names.insert(op.name).second) << op.name << " is registered twice";
    EXPECT_TRUE(op.infer) << op.name;
    EXPECT_TRUE(op.reference) << op.name;
    if (op.name != "fused") {
      EXPECT_FALSE(op.cases.empty()) << op.name;
    }
  }
}

// Checks each differentiable op, except those whose rule cannot be tested by differences of one op alone.
TEST(Ops, EveryGradientRuleIsChecked) {
  for (const OpDef& op : all_ops()) {
    if (!op.gradient || op.name == "batch_norm_stats") continue;
    const bool checked =
        std::any_of(op.cases.begin(), op.cases.end(), [](const OpCase& c) { return !c.differentiate.empty(); });
    EXPECT_TRUE(checked) << op.name;
  }
}

TEST(Ops, OnlyBatchStatisticsCoupleSamples) {
  for (const OpDef& op : all_ops()) EXPECT_EQ(op.couples_samples, op.name == "batch_norm_stats") << op.name;
}

}  // namespace
}  // namespace plimsoll::engine::testing
