// The recompute lever on small graphs: what it does to them, and that its numbers are those of the rewritten graph.
// Choices are compared with all choices there are.
#include "plan/recompute.h"

#include <gtest/gtest.h>

#include <random>

#include "lower/fused_body.h"
#include "plan/order.h"
#include "plan/recompute_rewrite.h"
#include "tests/support/fake_device.h"

namespace plimsoll::engine::testing {
namespace {

// Every node takes its output's bytes in microseconds, so a product with a small result is cheap to make again.
class PricedDevice : public FakeDevice {
 public:
  Result<KernelOffer> offer(const Graph& graph, const Node& node) const override {
    KernelOffer offer = *FakeDevice::offer(graph, node);
    offer.seconds = 0;
    for (const ValueId id : node.outputs) offer.seconds += 1e-6 * static_cast<double>(graph.value(id).bytes());
    if (!node.body && op_def(node.op).kind == OpKind::kOther)
      offer.seconds *= 1 + static_cast<double>(node.inputs[0] % 7);
    return offer;
  }
};

int count(const LoweredGraph& lowered, std::string_view op) {
  int sum = 0;
  for (const Node& node : lowered.graph.nodes) sum += node.op == op;
  return sum;
}

Bytes peak_of(const LoweredGraph& lowered) {
  return live_set_of(lowered);
}

RewrittenPhase recomputed(const LoweredGraph& lowered, const Device& device, int64_t percent) {
  auto result = recompute_percent({lowered, peak_of(lowered), peak_of(lowered)}, device, percent);
  if (!result) throw std::runtime_error("not reached");
  return std::move(*result);
}

LoweredGraph lowered_from(const std::string& text, const Device& device) {
  return require(lower(graph_of(text), device));
}

constexpr const char* kGelu = R"(graph "g"
  %x = input f32[64,64] inputs
  %w = input f32[64,64] weights persistent
  %h = matmul(%x, %w) : f32[64,64] activations
  %a = gelu(%h) : f32[64,64] activations
  %y = matmul(%a, %w) : f32[64,64] activations
  %z = matmul(%y, %w) : f32[64,64] activations
  %dz = tanh(%z) : f32[64,64] gradients stage=backward
  %dy = matmul(%dz, %w) : f32[64,64] gradients stage=backward
  %dw2 = matmul(%y, %dz) {transpose_a=true} : f32[64,64] gradients stage=backward
  %dw = matmul(%a, %dy) {transpose_a=true} : f32[64,64] gradients stage=backward
  %dh = gelu_grad(%dy, %h) : f32[64,64] gradients stage=backward
  output %dw
  output %dw2
  output %dh
)";

TEST(Recompute, MakesAValueAgainBeforeItsFirstReaderBehindTheWait) {
  const PricedDevice device;
  const LoweredGraph lowered = lowered_from(kGelu, device);
  const RewrittenPhase again = recomputed(lowered, device, 10);
  EXPECT_TRUE(verify(again.graph.graph)) << print(again.graph.graph);
  EXPECT_GT(again.values, 0);
  EXPECT_LE(peak_of(again.graph), share_kept(peak_of(lowered), 10));
  EXPECT_GT(again.graph.graph.nodes.size(), lowered.graph.nodes.size()) << print(again.graph.graph);
}

TEST(Recompute, LeavesAloneWhatNoBackwardNodeReads) {
  const PricedDevice device;
  const LoweredGraph lowered = lowered_from(R"(graph "g"
  %x = input f32[64,64] inputs
  %a = gelu(%x) : f32[64,64] activations
  %b = softmax(%a) : f32[64,64] activations
  output %b
)",
                                            device);
  EXPECT_FALSE(recompute_percent({lowered, peak_of(lowered), peak_of(lowered)}, device, 50));
}

// A chain of products. The backward pass reads the input of each product.
std::string chain_of_products(int length) {
  std::string text = "graph \"g\"\n  %x = input f32[64,8] inputs\n  %w = input f32[8,8] weights persistent\n";
  std::string last = "x";
  for (int i = 0; i < length; ++i) {
    text += "  %h" + std::to_string(i) + " = matmul(%" + last + ", %w) : f32[64,8] activations\n";
    last = "h" + std::to_string(i);
  }
  text += "  %d" + std::to_string(length) + " = tanh(%" + last + ") : f32[64,8] gradients stage=backward\n";
  for (int i = length - 1; i >= 0; --i) {
    const std::string n = std::to_string(i), read = i == 0 ? "x" : "h" + std::to_string(i - 1);
    text += "  %dw" + n + " = matmul(%" + read + ", %d" + std::to_string(i + 1) +
            ") {transpose_a=true} : f32[8,8] gradients stage=backward\n";
    text += "  %d" + n + " = matmul(%d" + std::to_string(i + 1) +
            ", %w) {transpose_b=true} : f32[64,8] gradients stage=backward\n";
  }
  for (int i = 0; i < length; ++i) text += "  output %dw" + std::to_string(i) + "\n";
  return text + "  output %d0\n";
}

TEST(Recompute, LeavesAShareAliveAndComputesEachProductOnceMore) {
  const FakeDevice device;
  const LoweredGraph lowered = lowered_from(chain_of_products(64), device);
  for (const int64_t percent : {20, 35, 50}) {
    const RewrittenPhase again = recomputed(lowered, device, percent);
    EXPECT_LE(peak_of(again.graph), share_kept(peak_of(lowered), percent)) << percent;
    EXPECT_EQ(again.graph.graph.nodes.size(), lowered.graph.nodes.size() + static_cast<size_t>(again.values))
        << percent;
  }
}

// Values that are dropped late in the backward pass read values that are dropped there too: segments of the square root
// of the length leave about twice that many alive.
TEST(Recompute, OfALongChainComesNearTheSquareRoot) {
  const FakeDevice device;
  const LoweredGraph lowered = lowered_from(chain_of_products(256), device);
  RecomputePath path(lowered, device);
  int64_t reached = 0;
  for (const int64_t percent : kRecomputePercents)
    if (path.reach(share_kept(peak_of(lowered), percent))) reached = percent;
  EXPECT_GE(reached, 70);
}

// The moving averages depend on the batch statistics. So the statistics are kept, and recomputed nodes read them.
TEST(Recompute, KeepsTheStatisticsOfABatch) {
  const PricedDevice device;
  const LoweredGraph lowered = lowered_from(R"(graph "g"
  %x = input f32[64,64] inputs
  %w = input f32[64,64] weights persistent
  %h = matmul(%x, %w) : f32[64,64] activations
  %mean, %var = batch_norm_stats(%h) : f32[64] activations, f32[64] activations
  %n = batch_norm_apply(%h, %mean, %var) {batch_stats=true, epsilon=0.001} : f32[64,64] activations
  %y = matmul(%n, %w) : f32[64,64] activations
  %z = matmul(%y, %w) : f32[64,64] activations
  %dz = matmul(%z, %w) {transpose_b=true} : f32[64,64] gradients stage=backward
  %dw2 = matmul(%y, %dz) {transpose_a=true} : f32[64,64] gradients stage=backward
  %dn = matmul(%dz, %w) {transpose_b=true} : f32[64,64] gradients stage=backward
  %dw = matmul(%n, %dn) {transpose_a=true} : f32[64,64] gradients stage=backward
  %g, %b = batch_norm_grad_stats(%dn, %h, %mean, %var) {epsilon=0.001} : f32[64] gradients, f32[64] gradients stage=backward
  output %dw
  output %dw2
  output %g
  output %b
)",
                                            device);
  const RecomputeUnits units(lowered, device);
  RecomputeChoice choice(units);
  for (size_t u = 0; u < units.units.size(); ++u)
    if (units.units[u].droppable && !units.units[u].is_behind()) choice.flip(u);
  const LoweredGraph again = with_recomputed(lowered, units, choice, device);
  EXPECT_TRUE(verify(again.graph)) << print(again.graph);
  EXPECT_EQ(count(again, "batch_norm_stats"), 1) << print(again.graph);
  EXPECT_GT(again.graph.nodes.size(), lowered.graph.nodes.size()) << print(again.graph);
}

// silu's gradient reads the value before silu, which an affine map computes from x. Its kernel can compute it too.
TEST(Recompute, ComputesAValueInsideTheKernelOfItsReader) {
  const PricedDevice device;
  const LoweredGraph lowered = lowered_from(R"(graph "g"
  %x = input f32[64,64] inputs
  %w = input f32[64,64] weights persistent
  %s = input f32[64] weights persistent
  %h = matmul(%x, %w) : f32[64,64] activations
  %a = bias_add(%h, %s) : f32[64,64] activations
  %b = silu(%a) : f32[64,64] activations
  %y = matmul(%b, %w) : f32[64,64] activations
  %z = matmul(%y, %w) : f32[64,64] activations
  %dz = matmul(%z, %w) {transpose_b=true} : f32[64,64] gradients stage=backward
  %dy = matmul(%dz, %w) {transpose_b=true} : f32[64,64] gradients stage=backward
  %da = silu_grad(%dy, %a) : f32[64,64] gradients stage=backward
  %dw = matmul(%h, %da) {transpose_a=true} : f32[64,64] gradients stage=backward
  output %dw
)",
                                            device);
  const RecomputeUnits units(lowered, device);
  const auto fused =
      std::find_if(units.units.begin(), units.units.end(), [](const RecomputeUnit& u) { return u.fused; });
  ASSERT_NE(fused, units.units.end()) << print(lowered.graph);
  RecomputeChoice choice(units);
  choice.flip(static_cast<size_t>(fused - units.units.begin()));
  const LoweredGraph again = with_recomputed(lowered, units, choice, device);
  EXPECT_TRUE(verify(again.graph)) << print(again.graph);
  EXPECT_EQ(again.graph.nodes.size(), lowered.graph.nodes.size()) << print(again.graph);
  EXPECT_LT(again.seconds(), lowered.seconds()) << "the forward pass need not write the value any more";
}

// A random graph: products and element-wise nodes forward, with residual sums; then a gradient per node that reads some
// of them. Nothing in it is a model, but everything that the lever looks at occurs.
std::string random_graph(std::mt19937& random, int length) {
  const auto draw = [&](int below) { return static_cast<int>(random() % static_cast<unsigned>(below)); };
  std::string text = "graph \"g\"\n  %v0 = input f32[64,8] inputs\n  %w = input f32[8,8] weights persistent\n";
  const auto value = [](int i) { return "%v" + std::to_string(i); };
  for (int i = 1; i <= length; ++i) {
    const std::string last = value(i - 1), other = value(draw(i));
    const char* const end = " : f32[64,8] activations\n";
    switch (draw(5)) {
      case 0:
        text += "  " + value(i) + " = gelu(" + last + ")" + end;
        break;
      case 1:
        text += "  " + value(i) + " = add(" + last + ", " + other + ")" + end;
        break;
      case 2:
        text += "  " + value(i) + " = softmax(" + last + ")" + end;
        break;
      default:
        text += "  " + value(i) + " = matmul(" + last + ", %w)" + end;
        break;
    }
  }
  std::string dy = value(length);
  std::string outputs;
  for (int i = length - 1; i >= 0; --i) {
    const std::string n = std::to_string(i), end = " : f32[64,8] gradients stage=backward\n";
    if (draw(3) > 0) {
      text += "  %w" + n + " = matmul(" + value(i) + ", " + dy +
              ") {transpose_a=true} : f32[8,8] gradients stage=backward\n";
      outputs += "  output %w" + n + "\n";
    }
    if (draw(2) > 0) {
      text += "  %d" + n + " = gelu_grad(" + dy + ", " + value(i) + ")" + end;
    } else {
      text += "  %d" + n + " = matmul(" + dy + ", %w) {transpose_b=true}" + end;
    }
    dy = "%d" + n;
  }
  return text + outputs + "  output " + dy + "\n";
}

TEST(Recompute, KnowsTheBytesAndSecondsOfEveryChoice) {
  std::mt19937 random(17);
  PricedDevice device;
  int exact = 0, tried = 0;
  for (int graph = 0; graph < 60; ++graph) {
    device.may_fuse = graph % 2 == 0;
    const LoweredGraph lowered = reorder_for_memory(lowered_from(random_graph(random, 4 + graph % 12), device));
    const RecomputeUnits units(lowered, device);
    RecomputeChoice choice(units);
    choice.set_cap(0);
    ASSERT_EQ(choice.peak(), peak_of(lowered));
    for (int flips = 0; flips < 12; ++flips) {
      const size_t unit = random() % units.units.size();
      if (!units.units[unit].droppable) continue;
      const double above = choice.above(), seconds = choice.seconds();
      const Bytes peak = choice.peak();
      const RecomputeChoice::Effect effect = choice.if_flipped(unit);
      EXPECT_EQ(choice.above(), above) << "looking changes nothing";
      EXPECT_NEAR(choice.seconds(), seconds, 1e-15);
      EXPECT_EQ(choice.peak(), peak);
      if (!effect.possible) continue;
      choice.flip(unit);
      EXPECT_EQ(choice.above(), effect.above);
      EXPECT_NEAR(choice.seconds() - seconds, effect.seconds, 1e-12);
      const LoweredGraph again = with_recomputed(lowered, units, choice, device);
      ASSERT_TRUE(verify(again.graph)) << print(again.graph);
      ++tried;
      // What is known beforehand may differ where two values are computed inside one kernel, or a result takes
      // another's place.
      EXPECT_NEAR(static_cast<double>(choice.peak()), static_cast<double>(peak_of(again)), 3 * 2048)
          << print(again.graph);
      exact += choice.peak() == peak_of(again) && std::abs(choice.seconds() - again.seconds()) < 1e-9;
    }
  }
  EXPECT_GT(tried, 300);
  EXPECT_GT(exact, tried * 95 / 100) << exact << " of " << tried;
}

// Graphs with longer chains, where recomputed values are recomputed from recomputed ones and computed inside kernels.
TEST(Recompute, NeverTakesLessThanTheBound) {
  std::mt19937 random(8);
  PricedDevice device;
  int compared = 0, nested = 0;
  double nearest = INFINITY;
  for (int graph = 0; graph < 60; ++graph) {
    device.may_fuse = graph % 2 == 0;
    const LoweredGraph lowered = reorder_for_memory(lowered_from(random_graph(random, 6 + graph % 30), device));
    const RecomputeUnits units(lowered, device);
    RecomputePath path(lowered, device);
    for (const int64_t percent : kRecomputePercents) {
      const Bytes cap = share_kept(units.peak(), percent);
      if (!path.reach(cap)) break;
      const LoweredGraph again = path.graph_of(path.mark()).graph;
      if (again.kernels.empty()) continue;
      const auto bound = least_recompute_seconds(units, peak_of(again));
      ASSERT_TRUE(bound);
      EXPECT_LE(lowered.seconds() + *bound, again.seconds() * (1 + 1e-9)) << graph << ", " << percent << " percent";
      if (*bound > 0) nearest = std::min(nearest, (again.seconds() - lowered.seconds()) / *bound);
      nested += path.mark().level > 0 ? 1 : 0;
      ++compared;
    }
  }
  EXPECT_GT(compared, 1000);
  EXPECT_GT(nested, 50);
  EXPECT_LT(nearest, 1.05) << "the bound is not tight anywhere";
}

// All choices of small graphs: none that reaches the bytes takes less than the bound, and the path comes near the best
// one.
TEST(Recompute, IsNearTheBestOfAllChoicesAndNeverBelowTheBound) {
  std::mt19937 random(4);
  PricedDevice device;
  device.may_fuse = false;
  double worst = 0, sum = 0;
  int compared = 0;
  for (int graph = 0; graph < 40; ++graph) {
    const LoweredGraph lowered = reorder_for_memory(lowered_from(random_graph(random, 7), device));
    const RecomputeUnits units(lowered, device);
    std::vector<size_t> free;
    for (size_t u = 0; u < units.units.size(); ++u)
      if (units.units[u].droppable && !units.units[u].is_behind()) free.push_back(u);
    if (free.size() > 11) free.resize(11);
    std::vector<std::pair<Bytes, double>> all;  // live bytes and seconds of each choice
    for (uint32_t bits = 0; bits < (1U << free.size()); ++bits) {
      RecomputeChoice choice(units);
      bool possible = true;
      for (size_t i = 0; i < free.size() && possible; ++i) {
        if ((bits >> i & 1) == 0) continue;
        possible = choice.if_flipped(free[i]).possible;
        if (possible) choice.flip(free[i]);
      }
      if (!possible) continue;
      const LoweredGraph again = with_recomputed(lowered, units, choice, device);
      all.emplace_back(peak_of(again), again.seconds());
    }
    for (const int64_t percent : {5, 10, 20, 30}) {
      const Bytes cap = share_kept(peak_of(lowered), percent);
      double best = INFINITY;
      for (const auto& [live, seconds] : all)
        if (live <= cap) best = std::min(best, seconds);
      const auto bound = least_recompute_seconds(RecomputeUnits(lowered, device), cap);
      if (std::isinf(best)) continue;
      ASSERT_TRUE(bound);
      EXPECT_LE(lowered.seconds() + *bound, best + 1e-12) << percent;
      const auto found = recompute_percent({lowered, peak_of(lowered), peak_of(lowered)}, device, percent);
      if (!found || found->values == 0) continue;
      if (peak_of(found->graph) > cap) continue;
      const double longer = found->graph.seconds() / best - 1;
      worst = std::max(worst, longer);
      sum += longer;
      ++compared;
    }
  }
  EXPECT_GT(compared, 40);
  std::printf("%d compared; the path takes %.2f %% longer than the best choice, at most %.2f %%\n", compared,
              100 * sum / compared, 100 * worst);
  EXPECT_LT(sum / compared, 0.01);
  EXPECT_LT(worst, 0.15);
}

}  // namespace
}  // namespace plimsoll::engine::testing
