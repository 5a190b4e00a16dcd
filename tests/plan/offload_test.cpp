// Offload: when values are copied to host memory and back, the cost of this, and the validator's checks.
#include "plan/offload.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "plan/order.h"
#include "tests/support/fake_device.h"
#include "tests/support/one_phase.h"

namespace plimsoll::engine::testing {
namespace {

constexpr Bytes kValue = 4096;

// Each node takes one second; the test sets the seconds of a copy.
class Linked final : public FakeDevice {
 public:
  double seconds_a_value = 1;
  Result<KernelOffer> offer(const Graph& graph, const Node& node) const override {
    auto offer = FakeDevice::offer(graph, node);
    if (node.op.starts_with("to_")) offer->seconds = 0;
    return offer;
  }
  double host_bytes_per_second() const override { return kValue / seconds_a_value; }
};

// A chain of products, forward and backward: each value waits from its forward to its backward reader. `views` makes
// the value `first` of %a, and all readers of %a read that instead.
Graph chain_graph(const std::string& views = "", const std::string& first = "%a") {
  return graph_of(fmt::format(R"(graph "chain"
  %w = input f32[32,32] weights persistent
  %x = input f32[32,32] inputs
  %a = matmul(%x, %w) : f32[32,32] activations
{0}  %b = matmul({1}, %w) : f32[32,32] activations
  %c = matmul(%b, %w) : f32[32,32] activations
  %d = matmul(%c, %w) : f32[32,32] activations
  %e = matmul(%d, %w) : f32[32,32] activations
  %f = matmul(%e, %w) : f32[32,32] activations
  %de = matmul(%f, %e) : f32[32,32] gradients
  %dd = matmul(%de, %d) : f32[32,32] gradients
  %dc = matmul(%dd, %c) : f32[32,32] gradients
  %db = matmul(%dc, %b) : f32[32,32] gradients
  %da = matmul(%db, {1}) : f32[32,32] gradients
  output %da
)",
                              views, first));
}

LoweredGraph chain(const Device& device) {
  return require(choose_kernels(chain_graph(), device));
}

Plan plan_of(const LoweredGraph& lowered) {
  return one_phase_plan(PhaseKind::kEvaluate, 1, lowered, place_phase);
}

size_t position(const Graph& graph, const std::string& op, const std::string& first_input) {
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    if (graph.nodes[n].op == op && graph.value(graph.nodes[n].inputs[0]).name.starts_with(first_input)) return n;
  return graph.nodes.size();
}

TEST(Offload, AQuickLinkCostsNothingAndNoMoreIsAliveThanTheCap) {
  Linked device;
  device.seconds_a_value = 0.5;
  const LoweredGraph before = chain(device);
  const Bytes live = live_set_of(before);
  ASSERT_EQ(live, 7 * kValue);  // x is read once; a to e wait, f is being computed
  for (const Bytes cap : {6 * kValue, 5 * kValue, 4 * kValue, 3 * kValue}) {
    const auto away = offload(before, device, cap);
    ASSERT_TRUE(away) << cap;
    EXPECT_LE(live_set_of(away->graph), cap);
    EXPECT_TRUE(verify(away->graph.graph));
    const Plan plan = plan_of(away->graph);
    EXPECT_TRUE(validate(plan)) << to_text(validate(plan).error());
    EXPECT_GT(plan.bytes_in(Space::kHost), 0);
    // With room for one value more than a node needs, each value comes back before its reader runs.
    if (cap >= 4 * kValue) {
      EXPECT_DOUBLE_EQ(away->graph.seconds(), before.seconds()) << cap;
    }
  }
}

TEST(Offload, ASlowLinkIsWaitedForAndTheSecondsAreSaid) {
  Linked device;
  device.seconds_a_value = 20;
  const LoweredGraph before = chain(device);
  const auto away = offload(before, device, 4 * kValue);
  ASSERT_TRUE(away);
  EXPECT_LE(live_set_of(away->graph), 4 * kValue);
  EXPECT_GE(away->graph.seconds(), before.seconds() + 20);
}

TEST(Offload, WhatIsWantedLastLeavesFirst) {
  Linked device;
  const auto away = offload(chain(device), device, 6 * kValue);
  ASSERT_TRUE(away);
  EXPECT_EQ(away->values, 1);
  const Graph& graph = away->graph.graph;
  const size_t sent = position(graph, "to_host", "a"), over = position(graph, "to_host_done", "a");
  const size_t begun = position(graph, "to_device", "a"), back = position(graph, "to_device_done", "a");
  ASSERT_LT(back, graph.nodes.size());
  EXPECT_TRUE(sent < over && over < begun && begun < back);
  EXPECT_LT(sent + 1, over);   // other nodes run during the copy
  EXPECT_LT(begun + 1, back);  // and during the copy back
}

TEST(Offload, LessThanANodeNeedsIsOutOfReach) {
  Linked device;
  EXPECT_FALSE(offload(chain(device), device, 2 * kValue));
  FakeDevice without;
  EXPECT_FALSE(offload(chain(without), without, 6 * kValue));
}

// A view that was created before the wait and is read after it must be created again from the returned value.
TEST(Offload, ViewsAreMadeAgain) {
  Linked device;
  const Graph graph = chain_graph(R"(  %v = reshape(%a) {shape=[16,64]} : f32[16,64] activations
  %u = reshape(%v) {shape=[32,32]} : f32[32,32] activations
)",
                                  "%u");
  const LoweredGraph before = require(choose_kernels(graph, device));
  const auto away = offload(before, device, live_set_of(before) - kValue);
  ASSERT_TRUE(away);
  EXPECT_TRUE(verify(away->graph.graph));
  EXPECT_LT(live_set_of(away->graph), live_set_of(before));
  const Plan plan = plan_of(away->graph);
  EXPECT_TRUE(validate(plan)) << to_text(validate(plan).error());
}

TEST(Offload, TheValidatorRefusesCopiesThatNobodyWaitsFor) {
  Linked device;
  const Plan good = plan_of(offload(chain(device), device, 4 * kValue)->graph);
  ASSERT_TRUE(validate(good));
  const Graph& graph = good.phases[0].graph;
  int broken = 0;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (!node.op.starts_with("to_")) continue;
    ++broken;
    if (node.op.ends_with("_done")) {
      Plan plan = good;  // the node that waits for the copy does not read its source
      plan.phases[0].graph.nodes[n].inputs[1] = graph.inputs[1];
      EXPECT_FALSE(validate(plan)) << n;
    } else {
      Plan plan = good;  // the place is reused before the copy ends
      const auto done = std::find_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& other) {
        return other.op == node.op + "_done" && other.inputs[0] == node.outputs[0];
      });
      ASSERT_NE(done, graph.nodes.end());
      plan.phases[0].values[static_cast<size_t>(done->inputs[1])].last = static_cast<int>(n);
      EXPECT_FALSE(validate(plan)) << n;
      plan = good;  // two values share a place in host memory
      for (Placement& place : plan.phases[0].values)
        if (place.space == Space::kHost) place.offset = 0;
      if (good.bytes_in(Space::kHost) > kValue) {
        EXPECT_FALSE(validate(plan)) << n;
      }
    }
  }
  EXPECT_GE(broken, 8);
}

TEST(Offload, TheTextOfAGraphNamesTheHostsMemory) {
  Linked device;
  const Graph graph = offload(chain(device), device, 5 * kValue)->graph.graph;
  const std::string text = print(graph);
  EXPECT_NE(text.find(": f32[32,32] activations space=host queue=to_host\n"), std::string::npos) << text;
  EXPECT_NE(text.find(": f32[32,32] activations queue=from_host\n"), std::string::npos) << text;
  EXPECT_EQ(print(require(parse_graph(text))), text);
}

}  // namespace
}  // namespace plimsoll::engine::testing
