// Folds max pooling into convolutions: checks the resulting graphs, when the two nodes stay, that no number changes,
// which cards support it, and how much of the arena it saves.
#include <gtest/gtest.h>

#include "backends/cuda/cuda.h"
#include "lower/lower.h"
#include "tests/ops/harness.h"
#include "tests/support/fake_device.h"
#include "tests/support/one_phase.h"
#include "tests/support/refusing_device.h"

namespace plimsoll::engine::testing {
namespace {

// The first convolution of a network after epilogues are folded, with max pooling and with its weight gradient.
std::string training(const std::string& pool, const std::string& more = "") {
  return fmt::format(R"(graph "g"
  %x = input f32[2,8,9,3] inputs
  %w = input f32[3,3,3,8] weights persistent layer="conv"
  %b = input f32[8] weights persistent layer="conv"
  %dp = input f32[2,3,3,8] inputs
  %y = conv2d(%x, %w, %b) {{activation="relu", dilations=[1,1], groups=1, pads=[0,0,0,0], strides=[1,1]}} : f32[2,6,7,8] activations layer="conv"
  %p, %i = max_pool2d(%y) {{{}}} : f32[2,3,3,8] activations, u8[2,3,3,8] activations layer="pool"
  %dy = max_pool2d_grad(%dp, %i) {{input_size=[6,7], {}}} : f32[2,6,7,8] gradients layer="pool"
  %dw, %db = conv2d_weight_grad(%x, %dy) {{bias=true, dilations=[1,1], groups=1, kernel=[3,3], pads=[0,0,0,0], strides=[1,1]}} : f32[3,3,3,8] gradients, f32[8] gradients layer="conv"
{}  output %p
  output %dw
  output %db
)",
                     pool, pool, more);
}

const char* const kTwoByTwo = "pads=[0,0,0,0], pool=[2,2], strides=[2,2]";

std::vector<std::string> ops_of(const Graph& graph) {
  std::vector<std::string> ops;
  for (const Node& node : graph.nodes) ops.push_back(node.op);
  return ops;
}

TEST(FoldPooling, MakesOneNodeOfConvolutionAndPoolingAndOfTheirGradients) {
  const Graph folded = fold_pooling(graph_of(training(kTwoByTwo)), FakeDevice());
  EXPECT_EQ(print(folded), R"(graph "g"
  %x = input f32[2,8,9,3] inputs
  %w = input f32[3,3,3,8] weights persistent layer="conv"
  %b = input f32[8] weights persistent layer="conv"
  %dp = input f32[2,3,3,8] inputs
  %p, %i = conv2d_pooled(%x, %w, %b) {activation="relu", dilations=[1,1], groups=1, pads=[0,0,0,0], pool=[2,2], strides=[1,1]} : f32[2,3,3,8] activations value_layer="pool", u8[2,3,3,8] activations value_layer="pool" layer="conv"
  %dw, %db = conv2d_pooled_weight_grad(%x, %dp, %i) {bias=true, dilations=[1,1], groups=1, kernel=[3,3], pads=[0,0,0,0], pool=[2,2], strides=[1,1]} : f32[3,3,3,8] gradients, f32[8] gradients layer="conv"
  output %p
  output %dw
  output %db
)");
  EXPECT_TRUE(verify(folded));
}

TEST(FoldPooling, ChangesNoNumber) {
  const Graph graph = graph_of(in_f64(training(kTwoByTwo))), folded = fold_pooling(graph, FakeDevice());
  ASSERT_EQ(folded.nodes.size(), 2U);
  const std::vector<Tensor> inputs = draw_inputs(graph, "normal");
  const auto apart = run_by_reference(graph, inputs), together = run_by_reference(folded, inputs);
  for (const char* name : {"p", "i", "dw", "db"})
    EXPECT_EQ(together[static_cast<size_t>(folded.find(name))].values,
              apart[static_cast<size_t>(graph.find(name))].values)
        << name;
}

TEST(FoldPooling, LeavesWindowsThatOverlapOrArePadded) {
  for (const char* pool : {"pads=[0,1,0,0], pool=[2,2], strides=[2,2]", "pads=[0,1,0,0], pool=[3,3], strides=[2,2]",
                           "pads=[0,0,0,0], pool=[2,3], strides=[2,2]"}) {
    const Graph graph = graph_of(training(pool));
    EXPECT_EQ(print(fold_pooling(graph, FakeDevice())), print(graph)) << pool;
  }
}

TEST(FoldPooling, LeavesWhatSomebodyElseReads) {
  Graph kept = graph_of(training(kTwoByTwo));
  kept.outputs.push_back(kept.find("y"));
  EXPECT_EQ(ops_of(fold_pooling(kept, FakeDevice())),
            (std::vector<std::string>{"conv2d", "max_pool2d", "conv2d_pooled_weight_grad"}));
  const std::string deeper =
      "  %dx = conv2d_input_grad(%dy, %w) {dilations=[1,1], groups=1, input_size=[8,9], pads=[0,0,0,0], strides=[1,1]}"
      " : f32[2,8,9,3] gradients layer=\"conv\"\n  output %dx\n";
  EXPECT_EQ(ops_of(fold_pooling(graph_of(training(kTwoByTwo, deeper)), FakeDevice())),
            (std::vector<std::string>{"conv2d_pooled", "max_pool2d_grad", "conv2d_weight_grad", "conv2d_input_grad"}));
}

TEST(FoldPooling, AsksTheDevice) {
  const FakeDevice device;
  const Graph graph = graph_of(training(kTwoByTwo));
  EXPECT_EQ(print(fold_pooling(graph, RefusingDevice(device, "conv2d_pooled"))), print(graph));
}

// The first layer of the model seed-2.
Graph first_layer(const std::string& dtype, int64_t channels, int64_t outputs = 32) {
  return graph_of(fmt::format(R"(graph "train"
  %x = input {0}[128,128,128,{1}] inputs
  %w = input {0}[3,3,{1},{2}] weights persistent
  %b = input {0}[{2}] weights persistent
  %y = conv2d(%x, %w, %b) {{activation="relu", dilations=[1,1], groups=1, pads=[0,0,0,0], strides=[1,1]}} : {0}[128,126,126,{2}] activations
  %p, %i = max_pool2d(%y) {{pads=[0,0,0,0], pool=[2,2], strides=[2,2]}} : {0}[128,63,63,{2}] activations, u8[128,63,63,{2}] activations
  %dp = tanh(%p) : {0}[128,63,63,{2}] gradients
  %dy = max_pool2d_grad(%dp, %i) {{input_size=[126,126], pads=[0,0,0,0], pool=[2,2], strides=[2,2]}} : {0}[128,126,126,{2}] gradients
  %dw, %db = conv2d_weight_grad(%x, %dy) {{bias=true, dilations=[1,1], groups=1, kernel=[3,3], pads=[0,0,0,0], strides=[1,1]}} : {0}[3,3,{1},{2}] gradients, {0}[{2}] gradients
  output %dw
  output %db
)",
                              dtype, channels, outputs));
}

bool folds(const cuda::Card& card, const std::string& dtype, int64_t channels = 3, int64_t outputs = 32) {
  const auto gpu = make_planned_gpu(card);
  const LoweredGraph lowered = require(lower(first_layer(dtype, channels, outputs), gpu->device()));
  const auto ops = ops_of(lowered.graph);
  const auto has = [&](const char* op) { return std::find(ops.begin(), ops.end(), op) != ops.end(); };
  EXPECT_EQ(has("conv2d_pooled"), has("conv2d_pooled_weight_grad"));
  EXPECT_EQ(has("conv2d_pooled"), !has("max_pool2d"));
  return has("conv2d_pooled");
}

TEST(FoldPooling, IsForCardsWithTheMatrixUnitsForIt) {
  cuda::Card h200 = require(cuda::card_from_profile("h200-141g"));
  for (const char* dtype : {"f32", "bf16", "f16"}) EXPECT_TRUE(folds(h200, dtype)) << dtype;
  EXPECT_TRUE(folds(require(cuda::card_from_profile("rtx-3060-12g")), "f16"));
  EXPECT_FALSE(folds(require(cuda::card_from_profile("t4-16g")), "f16"));
  EXPECT_TRUE(folds(h200, "f32", 4));
  EXPECT_FALSE(folds(h200, "f32", 5));      // more channels than the kernel supports
  EXPECT_FALSE(folds(h200, "f32", 3, 36));  // the number of outputs is not a multiple of the pack size
  h200.tf32 = false;
  EXPECT_FALSE(folds(h200, "f32"));  // the kernel would round to tf32
}

TEST(FoldPooling, TakesTheImageOutOfTheArenaOfAGpu) {
  const auto gpu = make_planned_gpu(require(cuda::card_from_profile("h200-141g")));
  const auto planned = [&](const Device& device) {
    Plan plan = one_phase_plan(PhaseKind::kTrain, 128, require(lower(first_layer("f32", 3), device)));
    require(validate(plan));
    return plan;
  };
  const Plan together = planned(gpu->device()), apart = planned(RefusingDevice(gpu->device(), "conv2d_pooled"));
  constexpr Bytes kImage = Bytes{128} * 126 * 126 * 32 * 4;
  EXPECT_GE(apart.arena_bytes - together.arena_bytes, kImage);
  EXPECT_LT(together.phases[0].seconds, apart.phases[0].seconds);
}

}  // namespace
}  // namespace plimsoll::engine::testing
