// The parts of the GPU backend that need no GPU: plans for cards that this machine does not have, and compiling the
// generated fused kernels.
#include <gtest/gtest.h>

#include <set>

#include "backends/cuda/card.h"
#include "backends/cuda/cuda.h"
#include "backends/cuda/device.h"
#include "backends/cuda/fused/kernel.h"
#include "lower/lower.h"
#include "ops/op.h"
#include "tests/ops/harness.h"
#ifdef PLIMSOLL_HAS_CUDA
#include "backends/cuda/driver/libraries.h"
#include "backends/cuda/fused/bind.h"
#endif

namespace plimsoll::engine::testing {
namespace {

cuda::CudaDevice device_of(const std::string& profile) {
  auto card = cuda::card_from_profile(profile);
  EXPECT_TRUE(card);
  return cuda::CudaDevice(*card);
}

TEST(PlannedGpu, EveryProfileAnswersForEveryOp) {
  for (const cuda::Card& card : cuda::card_profiles()) {
    const cuda::CudaDevice device(card);
    for (const OpDef& op : all_ops())
      for (const OpCase& one : op.cases) {
        if (op.name.starts_with("conv2d_pooled") && card.capability < 80) continue;  // stays two nodes on older cards
        const auto made = graph_of(op, one, DType::kFloat32);
        ASSERT_TRUE(made);
        const auto offer = device.offer(made->graph, made->graph.nodes[0]);
        EXPECT_TRUE(offer) << card.profile << ": " << op.name << "/" << one.name
                           << (offer ? "" : ": " + offer.error().what);
        EXPECT_GE(offer ? offer->seconds : 0, 0) << op.name;
      }
  }
}

TEST(PlannedGpu, ACardWithoutBFloat16RefusesItsMatrixWork) {
  const cuda::CudaDevice turing = device_of("t4-16g"), ampere = device_of("rtx-3090-24g");
  const OpDef& op = op_def("matmul");
  const auto made = graph_of(op, op.cases[0], DType::kBFloat16);
  ASSERT_TRUE(made);
  EXPECT_FALSE(turing.offer(made->graph, made->graph.nodes[0]));
  EXPECT_TRUE(ampere.offer(made->graph, made->graph.nodes[0]));
}

TEST(PlannedGpu, AnUnknownProfileListsTheKnownOnes) {
  const auto card = cuda::card_from_profile("rtx-9999-1g");
  ASSERT_FALSE(card);
  EXPECT_NE(card.error().facts.at(0).find("rtx-4090-24g"), std::string::npos);
}

TEST(PlannedGpu, NamesItsMemoryAfterTheCardsNumber) {
  cuda::Card card = *cuda::card_from_profile("rtx-4090-24g");
  EXPECT_EQ(make_planned_gpu(card)->device().info().memory, "gpu:0");
  card.ordinal = 3;
  EXPECT_EQ(make_planned_gpu(card)->device().info().memory, "gpu:3");
}

TEST(PlannedGpu, RunsNothing) {
  const auto backend = make_planned_gpu(*cuda::card_from_profile("rtx-4090-24g"));
  EXPECT_FALSE(backend->reserve(Space::kDevice, kMiB));
}

// Three weights of different shapes with the same kind of update.
Graph updates() {
  return *parse_graph(R"(graph "updates"
  %a = input f32[4,8] weights persistent
  %da = input bf16[4,8] gradients
  %b = input f32[17] weights persistent
  %db = input bf16[17] gradients
  %c = input f32[3,3,3,5] weights persistent
  %dc = input bf16[3,3,3,5] gradients
  %rate = input f32[] inputs persistent
  %wide_a = cast(%da) {dtype="f32"} : f32[4,8] gradients
  %new_a = sgd(%a, %wide_a, %rate) {momentum=0.0} : f32[4,8] temporaries
  %wide_b = cast(%db) {dtype="f32"} : f32[17] gradients
  %new_b = sgd(%b, %wide_b, %rate) {momentum=0.0} : f32[17] temporaries
  %wide_c = cast(%dc) {dtype="f32"} : f32[3,3,3,5] gradients
  %new_c = sgd(%c, %wide_c, %rate) {momentum=0.0} : f32[3,3,3,5] temporaries
  update %a <- %new_a
  update %b <- %new_b
  update %c <- %new_c
)");
}

TEST(Group, EqualUpdatesOfManyWeightsAreOneNode) {
  const cuda::CudaDevice device = device_of("h200-141g");
  const Graph grouped = group_equal(fuse_elementwise(updates(), device), device);
  ASSERT_EQ(grouped.nodes.size(), 1U);
  EXPECT_EQ(grouped.nodes[0].body->name, kGroupBody);
  EXPECT_TRUE(verify(grouped));
  const auto pass = cuda::make_fused_kernel(grouped, grouped.nodes[0]);
  ASSERT_TRUE(pass);
  ASSERT_EQ(pass->parts.size(), 3U);
  EXPECT_EQ(pass->parts[1].elements, 17);
}

// A node that reads the result of a group's member cannot join the group.
TEST(Group, WhatDependsOnAMemberStaysApart) {
  const cuda::CudaDevice device = device_of("h200-141g");
  const Graph graph = *parse_graph(R"(graph "chain"
  %x = input f32[8] activations
  %y = input f32[9] activations
  %a = affine(%x) {scale=2.0, offset=0.0} : f32[8] activations
  %s = softmax(%a) : f32[8] activations
  %b = affine(%s) {scale=2.0, offset=0.0} : f32[8] activations
  output %b
)");
  const Graph grouped = group_equal(graph, device);
  EXPECT_EQ(grouped.nodes.size(), 3U);
}

// Three convolutions of 64 channels, and, for training, the input gradients of the last two.
Graph convolutions(bool training) {
  constexpr const char* kGeometry = "dilations=[1,1], groups=1, pads=[1,1,1,1], strides=[1,1]";
  std::string text = "graph \"convolutions\"\n  %y0 = input bf16[8,32,32,64] inputs\n";
  for (int i = 1; i <= 3; ++i) text += fmt::format("  %w{} = input bf16[3,3,64,64] weights persistent\n", i);
  for (int i = 1; i <= 3; ++i)
    text += fmt::format("  %y{0} = conv2d(%y{1}, %w{0}) {{{2}}} : bf16[8,32,32,64] activations\n", i, i - 1, kGeometry);
  if (!training) return *parse_graph(text + "  output %y3\n");
  text += "  %dy3 = tanh(%y3) : bf16[8,32,32,64] gradients\n";
  for (int i = 3; i >= 1; --i) {
    text +=
        fmt::format("  %dw{0} = conv2d_weight_grad(%y{1}, %dy{0}) {{kernel=[3,3], {2}}} : bf16[3,3,64,64] gradients\n",
                    i, i - 1, kGeometry);
    if (i > 1)
      text += fmt::format(
          "  %dy{1} = conv2d_input_grad(%dy{0}, %w{0}) {{input_size=[32,32], {2}}} : bf16[8,32,32,64] gradients\n", i,
          i - 1, kGeometry);
  }
  return *parse_graph(text + "  output %dw1\n  output %dw2\n  output %dw3\n");
}

std::vector<size_t> values_of_each_move(const Graph& graph) {
  std::vector<size_t> counts;
  for (const Node& node : graph.nodes)
    if (node.op == "reorder") counts.push_back(node.inputs.size());
  return counts;
}

// The first layer's weights are read only once, so grouping must not convert all weights at the start because of them.
TEST(Group, WeightsMoveTogetherWhereTheyStayAndGradientsAtTheEnd) {
  const cuda::CudaDevice device = device_of("h200-141g");
  const LoweredGraph trained = require(lower(convolutions(true), device));
  EXPECT_EQ(values_of_each_move(trained.graph), (std::vector<size_t>{1, 2, 3}));
  EXPECT_TRUE(verify(trained.graph));
  const LoweredGraph evaluated = require(lower(convolutions(false), device));
  EXPECT_EQ(values_of_each_move(evaluated.graph), (std::vector<size_t>{1, 1, 1}));
}

// A gradient that is used as the weights of a convolution: moving its reorder to the end would place it after its
// reader.
TEST(Group, AMoveDoesNotOvertakeWhatItReads) {
  const cuda::CudaDevice device = device_of("h200-141g");
  constexpr const char* kGeometry = "dilations=[1,1], groups=1, pads=[1,1,1,1], strides=[1,1]";
  const Graph graph = *parse_graph(fmt::format(R"(graph "second order"
  %x = input bf16[8,32,32,64] inputs
  %dy = input bf16[8,32,32,64] inputs
  %w = input bf16[3,3,64,64] weights persistent
  %d1 = conv2d_weight_grad(%x, %dy) {{kernel=[3,3], {0}}} : bf16[3,3,64,64] weights
  %y = conv2d(%x, %w) {{{0}}} : bf16[8,32,32,64] activations
  %d2 = conv2d_weight_grad(%y, %dy) {{kernel=[3,3], {0}}} : bf16[3,3,64,64] gradients
  %z = conv2d(%y, %d1) {{{0}}} : bf16[8,32,32,64] activations
  %u = conv2d(%z, %w) {{{0}}} : bf16[8,32,32,64] activations
  output %u
  output %d2
)",
                                               kGeometry));
  const LoweredGraph lowered = require(lower(graph, device));
  EXPECT_TRUE(verify(lowered.graph));
  EXPECT_EQ(values_of_each_move(lowered.graph).size(), 3U);  // the two gradients in one reorder, and two weights
}

#ifdef PLIMSOLL_HAS_CUDA
void expect_compiles(const Graph& graph, const Node& node, const std::string& name, int capability,
                     std::set<std::string>& seen) {
  const auto pass = cuda::make_fused_kernel(graph, node);
  ASSERT_TRUE(pass) << name << ": " << pass.error().what;
  if (!seen.insert(pass->source).second) return;
  const auto code = cuda::compile_source(pass->source, capability);
  EXPECT_TRUE(code) << name << " for sm_" << capability << ": " << code.error().what << "\n"
                    << (code.error().facts.empty() ? "" : code.error().facts[0]);
}

TEST(FusedKernel, EveryElementwiseOpCompilesForOldAndNewCards) {
  if (!cuda::load_nvrtc()) GTEST_SKIP() << "NVRTC is not installed";
  std::set<std::string> seen;
  int capability = 75;
  for (const OpDef& op : all_ops())
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      if (op.cases.empty()) continue;
      const auto made = graph_of(op, op.cases[0], dtype);
      ASSERT_TRUE(made) << op.name;
      const Node& node = made->graph.nodes[0];
      if (!cuda::has_fused_form(made->graph, node)) continue;
      // Each op is compiled for another card in turn, so that together they cover all architectures.
      expect_compiles(made->graph, node, op.name, capability, seen);
      capability = capability == 75 ? 80 : capability == 80 ? 90 : capability == 90 ? 120 : 75;
    }
  const cuda::CudaDevice device = device_of("h200-141g");
  const Graph grouped = group_equal(fuse_elementwise(updates(), device), device);
  for (const int card : {75, 90, 120}) expect_compiles(grouped, grouped.nodes[0], "group", card, seen);
  EXPECT_GT(seen.size(), 20U);
}
#endif

}  // namespace
}  // namespace plimsoll::engine::testing
