// Graph passes, tested on the text of the graph before and after.
#include <gtest/gtest.h>

#include "levers/relu_pooling.h"
#include "lower/lower.h"
#include "ops/op.h"
#include "tests/support/fake_device.h"

namespace plimsoll::engine::testing {
namespace {

TEST(FoldEpilogues, TakesBiasAndReluIntoTheProductBeforeThem) {
  EXPECT_EQ(print(fold_epilogues(graph_of(R"(graph "g"
  %x = input f32[4,6] inputs
  %w = input f32[6,8] weights persistent
  %b = input f32[8] weights persistent
  %1 = matmul(%x, %w) : f32[4,8] activations
  %2 = bias_add(%1, %b) : f32[4,8] activations
  %3 = relu(%2) : f32[4,8] activations
  output %3
)"))),
            R"(graph "g"
  %x = input f32[4,6] inputs
  %w = input f32[6,8] weights persistent
  %b = input f32[8] weights persistent
  %3 = matmul(%x, %w, %b) {activation="relu"} : f32[4,8] activations
  output %3
)");
}

TEST(FoldEpilogues, LeavesAValueThatSomebodyElseReads) {
  const char* const text = R"(graph "g"
  %x = input f32[4,6] inputs
  %w = input f32[6,8] weights persistent
  %1 = matmul(%x, %w) : f32[4,8] activations
  %2 = relu(%1) : f32[4,8] activations
  %3 = add(%1, %2) : f32[4,8] activations
  output %3
)";
  EXPECT_EQ(print(fold_epilogues(graph_of(text))), text);
  const char* const is_output = R"(graph "g"
  %x = input f32[4,6] inputs
  %w = input f32[6,8] weights persistent
  %1 = matmul(%x, %w) : f32[4,8] activations
  %2 = relu(%1) : f32[4,8] activations
  output %1
  output %2
)";
  EXPECT_EQ(print(fold_epilogues(graph_of(is_output))), is_output);
}

TEST(FoldEpilogues, LeavesReluThatIsNotPlain) {
  for (const char* attrs : {"max_value=6.0", "negative_slope=0.1", "threshold=0.5"}) {
    const std::string text = std::string(R"(graph "g"
  %x = input f32[4,6] inputs
  %w = input f32[6,8] weights persistent
  %1 = matmul(%x, %w) : f32[4,8] activations
  %2 = relu(%1) {)") + attrs +
                             R"(} : f32[4,8] activations
  output %2
)";
    EXPECT_EQ(print(fold_epilogues(graph_of(text))), text);
  }
}

TEST(FuseElementwise, MakesOneNodeOfAChain) {
  const Graph fused = fuse_elementwise(graph_of(R"(graph "g"
  %x = input f32[4,8] inputs
  %s = input f32[] inputs persistent
  %1 = scale(%x, %s) : f32[4,8] activations
  %2 = tanh(%1) : f32[4,8] activations
  %3 = add(%2, %x) : f32[4,8] activations
  output %3
)"),
                                       FakeDevice());
  ASSERT_EQ(fused.nodes.size(), 1U) << print(fused);
  EXPECT_EQ(fused.nodes[0].op, "fused");
  ASSERT_NE(fused.nodes[0].body, nullptr);
  EXPECT_EQ(fused.nodes[0].body->nodes.size(), 3U);
  EXPECT_EQ(fused.nodes[0].inputs.size(), 2U);
  EXPECT_EQ(fused.nodes[0].outputs.size(), 1U);
  EXPECT_TRUE(verify(fused));
}

TEST(FuseElementwise, KeepsWhatOthersReadAsOutputs) {
  const Graph fused = fuse_elementwise(graph_of(R"(graph "g"
  %x = input f32[4,8] inputs
  %w = input f32[8,2] weights persistent
  %1 = tanh(%x) : f32[4,8] activations
  %2 = sigmoid(%1) : f32[4,8] activations
  %3 = matmul(%1, %w) : f32[4,2] activations
  output %2
  output %3
)"),
                                       FakeDevice());
  ASSERT_EQ(fused.nodes.size(), 2U) << print(fused);
  EXPECT_EQ(fused.nodes[0].outputs.size(), 2U);
  EXPECT_TRUE(verify(fused));
}

// If tanh moved down to add, the product would read it before it is computed.
TEST(FuseElementwise, MovesNothingPastAReader) {
  const char* const text = R"(graph "g"
  %x = input f32[4,8] inputs
  %w = input f32[8,8] weights persistent
  %1 = tanh(%x) : f32[4,8] activations
  %2 = matmul(%1, %w) : f32[4,8] activations
  %3 = add(%1, %2) : f32[4,8] activations
  output %3
)";
  EXPECT_EQ(print(fuse_elementwise(graph_of(text), FakeDevice())), text);
}

TEST(FuseElementwise, NeverReadsAReductionInThePassThatMakesIt) {
  const Graph fused = fuse_elementwise(graph_of(R"(graph "g"
  %x = input f32[4,2,2,8] inputs
  %1 = tanh(%x) : f32[4,2,2,8] activations
  %mean, %var = batch_norm_stats(%1) : f32[8] activations, f32[8] activations
  %2 = batch_norm_apply(%1, %mean, %var) {batch_stats=true, epsilon=0.001} : f32[4,2,2,8] activations
  output %2
)"),
                                       FakeDevice());
  EXPECT_TRUE(verify(fused)) << print(fused);
  for (const Node& node : fused.nodes) {
    if (!node.body) continue;
    for (const Node& member : node.body->nodes)
      for (ValueId in : member.inputs) {
        const NodeId producer = node.body->value(in).producer;
        EXPECT_FALSE(producer != kNone && op_def(node.body->node(producer).op).kind == OpKind::kReduction)
            << print(fused);
      }
  }
}

TEST(FuseElementwise, AsksTheDevice) {
  const char* const text = R"(graph "g"
  %x = input f32[4,8] inputs
  %1 = tanh(%x) : f32[4,8] activations
  %2 = sigmoid(%1) : f32[4,8] activations
  output %2
)";
  FakeDevice device;
  device.may_fuse = false;
  EXPECT_EQ(print(fuse_elementwise(graph_of(text), device)), text);
}

const char* const kPooled = R"(graph "g"
  %x = input f32[2,4,4,3] inputs
  %dp = input f32[2,2,2,3] inputs
  %y = relu(%x) : f32[2,4,4,3] activations
  %p, %i = max_pool2d(%y) {pads=[0,0,0,0], pool=[2,2], strides=[2,2]} : f32[2,2,2,3] activations, u8[2,2,2,3] activations
  %dy = max_pool2d_grad(%dp, %i) {input_size=[4,4], pads=[0,0,0,0], pool=[2,2], strides=[2,2]} : f32[2,4,4,3] gradients
  %dx = relu_grad(%dy, %y) {from="output"} : f32[2,4,4,3] gradients
  output %p
  output %dx
)";

TEST(MaskReluAfterPooling, TakesTheMaskAtThePooledSize) {
  const Rewritten rewritten = mask_relu_after_pooling(graph_of(kPooled));
  EXPECT_EQ(rewritten.count, 1);
  EXPECT_TRUE(verify(rewritten.graph));
  EXPECT_EQ(print(rewritten.graph), R"(graph "g"
  %x = input f32[2,4,4,3] inputs
  %dp = input f32[2,2,2,3] inputs
  %y = relu(%x) : f32[2,4,4,3] activations
  %p, %i = max_pool2d(%y) {pads=[0,0,0,0], pool=[2,2], strides=[2,2]} : f32[2,2,2,3] activations, u8[2,2,2,3] activations
  %dp/masked = relu_grad(%dp, %p) {from="output"} : f32[2,2,2,3] inputs
  %dx = max_pool2d_grad(%dp/masked, %i) {input_size=[4,4], pads=[0,0,0,0], pool=[2,2], strides=[2,2]} : f32[2,4,4,3] gradients
  output %p
  output %dx
)");
}

TEST(MaskReluAfterPooling, LeavesAGradientThatOthersReadToo) {
  std::string text = kPooled;
  text += "  output %dy\n";
  text.replace(text.find("  output %p\n"), 12,
               "  %also = tanh(%dy) : f32[2,4,4,3] gradients\n  output %also\n  output %p\n");
  EXPECT_EQ(mask_relu_after_pooling(graph_of(text)).count, 0);
}

// A gradient that is a graph output must stay, even if no node reads it.
TEST(MaskReluAfterPooling, LeavesAGradientThatIsAnOutput) {
  const Rewritten rewritten = mask_relu_after_pooling(graph_of(std::string(kPooled) + "  output %dy\n"));
  EXPECT_TRUE(verify(rewritten.graph)) << print(rewritten.graph);
  EXPECT_EQ(rewritten.graph.outputs.size(), 3U);
}

}  // namespace
}  // namespace plimsoll::engine::testing
