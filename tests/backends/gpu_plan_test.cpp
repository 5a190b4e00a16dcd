// The parts of the GPU backend that need no GPU: plans for cards that this machine does not have, and compiling the
// generated fused kernels.
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "backends/cuda/card.h"
#include "backends/cuda/cuda.h"
#include "backends/cuda/device.h"
#include "backends/cuda/fused/kernel.h"
#include "lower/lower.h"
#include "ops/op.h"
#include "plan/order.h"
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

// What has no kernel for GPUs yet: ops, and the words of the refusal.
bool has_no_kernel_yet(const std::string& op, const std::string& refusal) {
  const auto says = [&](const char* words) { return refusal.find(words) != std::string::npos; };
  if (op == "ctc" || op == "ctc_grad") return says("the GPU backend has no kernel for");
  if (op == "affine_image_grad") return says("has no kernel for GPUs yet");
  if (op == "resample" || op == "resample_grad") return says("has no kernel for GPUs yet");
  return false;
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
        if (!offer && has_no_kernel_yet(op.name, offer.error().what)) continue;
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

// An LSTM of 64 samples, and its gradient.
CaseGraph lstm_of(int64_t steps, int64_t units) {
  const auto f32 = [](std::vector<int64_t> dims) { return TensorType{DType::kFloat32, Shape{std::move(dims)}}; };
  const OpCase one{"lstm",
                   {f32({64, steps, 32}), f32({32, 4 * units}), f32({units, 4 * units}), f32({64, units}),
                    f32({64, units}), f32({4 * units})},
                   {{"cell", std::string("lstm")},
                    {"activation", std::string("tanh")},
                    {"bias", true},
                    {"sequences", true},
                    {"saves", true}},
                   {},
                   {0, 1, 2}};
  return require(graph_of(op_def("recurrent"), one, DType::kFloat32));
}

TEST(PlannedGpu, TheWorkspaceOfALoopDoesNotGrowWithItsSteps) {
  for (const char* const card : {"h200-141g", "rtx-4090-24g", "t4-16g"}) {
    const cuda::CudaDevice device = device_of(card);
    for (const int64_t units : {96, 1000, 3000}) {
      const CaseGraph some = lstm_of(40, units), many = lstm_of(4000, units);
      ASSERT_EQ(some.graph.nodes.size(), 2U);
      for (size_t n = 0; n < 2; ++n) {
        const auto few_steps = device.offer(some.graph, some.graph.nodes[n]);
        const auto many_steps = device.offer(many.graph, many.graph.nodes[n]);
        ASSERT_TRUE(few_steps && many_steps);
        EXPECT_EQ(few_steps->workspace, many_steps->workspace) << card << ", " << units << " units";
        EXPECT_NEAR(many_steps->seconds / few_steps->seconds, 100, 25) << card << ", " << units << " units";
      }
    }
  }
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

// `layers` Dense layers without bias, each with a square weight of 64 MiB, their gradients, and what `finish` does with
// the gradient of layer i.
Graph wide_layers(int layers, const std::function<std::string(int)>& finish) {
  std::string text = "graph \"wide\"\n  %rate = input f32[] inputs persistent\n  %y0 = input f32[32,4096] inputs\n";
  for (int i = 1; i <= layers; ++i)
    text += fmt::format(
        "  %w{0} = input f32[4096,4096] weights persistent\n"
        "  %sum{0} = input f32[4096,4096] gradients persistent\n",
        i);
  for (int i = 1; i <= layers; ++i)
    text += fmt::format("  %y{0} = matmul(%y{1}, %w{0}) : f32[32,4096] activations\n", i, i - 1);
  text += fmt::format("  %dy{0} = tanh(%y{0}) : f32[32,4096] gradients stage=backward\n", layers);
  for (int i = layers; i >= 1; --i) {
    text += fmt::format(
        "  %dw{0} = matmul(%y{1}, %dy{0}) {{transpose_a=true}} : f32[4096,4096] gradients stage=backward\n", i, i - 1);
    if (i > 1)
      text += fmt::format(
          "  %dy{1} = matmul(%dy{0}, %w{0}) {{transpose_b=true}} : f32[32,4096] gradients stage=backward\n", i, i - 1);
  }
  for (int i = 1; i <= layers; ++i) text += finish(i);
  for (int i = 1; i <= layers; ++i) text += fmt::format("  update %w{0} <- %new{0}\n", i);
  return *parse_graph(text);
}

// With all updates, or all sums, in one kernel, all gradients would be alive at once.
TEST(Group, ALargeGradientIsFreedBeforeTheNextOneIsComputed) {
  constexpr Bytes kGradient = 64 * kMiB;
  const cuda::CudaDevice device = device_of("t4-16g");
  for (const char* const finish :
       {"  %new{0} = sgd(%w{0}, %dw{0}, %rate) {{momentum=0.0}} : f32[4096,4096] temporaries stage=update\n",
        "  %new{0} = add(%sum{0}, %dw{0}) : f32[4096,4096] gradients stage=backward\n"}) {
    const Graph graph = wide_layers(6, [&](int i) { return fmt::format(fmt::runtime(finish), i); });
    ASSERT_TRUE(verify(graph)) << finish;
    const LoweredGraph lowered = reorder_for_memory(require(lower(graph, device)));
    Bytes workspace = 0;
    for (const KernelOffer& kernel : lowered.kernels) workspace = std::max(workspace, kernel.workspace);
    EXPECT_LE(live_set_of(lowered), kGradient + workspace + 8 * kMiB) << finish;
  }
}

// Two activations recomputed for the backward pass, which has begun: together, or with the same op of the forward pass,
// they would be alive earlier than recomputing wants.
TEST(Group, WhatIsRecomputedIsInNoGroup) {
  const cuda::CudaDevice device = device_of("rtx-4090-24g");
  const Graph graph = *parse_graph(R"(graph "recomputed"
  %x = input f32[64,64] activations
  %z = input f32[64,32] activations
  %a = gelu(%x) : f32[64,64] activations
  %sa = softmax(%a) : f32[64,64] activations
  %sb = softmax(%z) : f32[64,32] activations
  %dsb = softmax_grad(%sb, %sb) : f32[64,32] gradients stage=backward
  %b2 = gelu(%z) : f32[64,32] activations
  %db = softmax_grad(%dsb, %b2) : f32[64,32] gradients stage=backward
  %a2 = gelu(%x) : f32[64,64] activations
  %da = softmax_grad(%sa, %a2) : f32[64,64] gradients stage=backward
  output %db
  output %da
)");
  const Graph grouped = group_equal(graph, device);
  EXPECT_EQ(print(grouped), print(graph));
}

TEST(Group, AForwardNodeAndABackwardNodeAreNoGroup) {
  const cuda::CudaDevice device = device_of("rtx-4090-24g");
  const auto nodes = [&](const char* stage) {
    const Graph graph = *parse_graph(fmt::format(R"(graph "stages"
  %x = input f32[64,64] activations
  %z = input f32[64,32] activations
  %a = tanh(%x) : f32[64,64] activations
  %b = tanh(%z) : f32[64,32] activations{}
  output %a
  output %b
)",
                                                 stage));
    return group_equal(graph, device).nodes.size();
  };
  EXPECT_EQ(nodes(""), 1U);
  EXPECT_EQ(nodes(" stage=backward"), 2U);
}

// Eight weights whose copies in half precision have 12 MiB each: one group would hold all of them before the first
// layer runs.
TEST(Group, CopiesOfLargeWeightsAreMadeNearTheirReaders) {
  const cuda::CudaDevice device = device_of("rtx-4090-24g");
  std::string text = "graph \"copies\"\n  %y0 = input bf16[8,2508] inputs\n";
  for (int i = 1; i <= 8; ++i) text += fmt::format("  %w{} = input f32[2508,2508] weights persistent\n", i);
  for (int i = 1; i <= 8; ++i)
    text += fmt::format(
        "  %h{0} = cast(%w{0}) {{dtype=\"bf16\"}} : bf16[2508,2508] temporaries\n"
        "  %y{0} = matmul(%y{1}, %h{0}) : bf16[8,2508] activations\n",
        i, i - 1);
  const Graph graph = *parse_graph(text + "  output %y8\n");
  const Graph grouped = group_equal(graph, device);
  std::vector<size_t> copies;
  std::string order;
  for (const Node& node : grouped.nodes) {
    order += node.op == "matmul" ? 'm' : 'c';
    if (node.op != "matmul") copies.push_back(node.outputs.size());
  }
  EXPECT_EQ(copies, (std::vector<size_t>{2, 2, 2, 2}));
  EXPECT_EQ(order, "cmmcmmcmmcmm");
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
