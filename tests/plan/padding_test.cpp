// Padding moves between convolutions and pad2d: checks the resulting graphs, and that no number changes.
#include <gtest/gtest.h>

#include "backends/cuda/cuda.h"
#include "lower/lower.h"
#include "tests/ops/harness.h"
#include "tests/support/fake_device.h"

namespace plimsoll::engine::testing {
namespace {

// Prefers padding inside the convolution if it is equal on opposite sides.
class EvenDevice final : public FakeDevice {
 public:
  bool recomputes_freely() const override { return true; }
  Padding padding(const Graph&, const Node& node) const override {
    const auto& pads = node.attrs.list("pads");
    return pads[0] == pads[1] && pads[2] == pads[3] ? Padding::kInside : Padding::kOutside;
  }
};

std::vector<Tensor> random_inputs(const Graph& graph) {
  std::mt19937_64 random(11);
  std::vector<Tensor> inputs;
  for (ValueId id : graph.inputs) inputs.push_back(draw(graph.type(id), "normal", random));
  return inputs;
}

void expect_same_outputs(const Graph& before, const Graph& after) {
  ASSERT_TRUE(verify(after)) << print(after);
  const auto inputs = random_inputs(before);
  const auto wanted = run_by_reference(before, inputs), got = run_by_reference(after, inputs);
  ASSERT_EQ(before.outputs.size(), after.outputs.size());
  for (size_t i = 0; i < before.outputs.size(); ++i)
    EXPECT_EQ(got[static_cast<size_t>(after.outputs[i])].values, wanted[static_cast<size_t>(before.outputs[i])].values)
        << "output " << i << " of\n"
        << print(after);
}

// A convolution with both gradients. `pads` are its own pads; `outer`, if not empty, are the pads of a pad2d before it.
Graph convolution(const std::string& outer, const std::string& pads, int64_t size, int64_t padded, int64_t out) {
  const std::string image = fmt::format("f64[2,{},{},3]", size, size),
                    large = fmt::format("f64[2,{},{},3]", padded, padded);
  const std::string y = fmt::format("f64[2,{},{},5]", out, out);
  const std::string geometry = fmt::format("dilations=[1,1], groups=1, {{}}pads=[{}], strides=[2,2]", pads);
  const auto attrs = [&](const std::string& own) { return fmt::format(fmt::runtime(geometry), own); };
  std::string text = fmt::format(R"(graph "g"
  %x = input {} inputs
  %w = input f64[3,3,3,5] weights persistent
  %dy = input {} inputs
)",
                                 image, y);
  const bool apart = !outer.empty();
  if (apart) text += fmt::format("  %p = pad2d(%x) {{pads=[{}]}} : {} activations\n", outer, large);
  text += fmt::format("  %y = conv2d({}, %w) {{{}}} : {} activations\n", apart ? "%p" : "%x", attrs(""), y);
  text += fmt::format(
      "  %dw, %db = conv2d_weight_grad({}, %dy) {{bias=true, {}}} : f64[3,3,3,5] gradients, f64[5] gradients\n",
      apart ? "%p" : "%x", attrs("kernel=[3,3], "));
  text += fmt::format("  %{} = conv2d_input_grad(%dy, %w) {{{}}} : {} gradients\n", apart ? "dp" : "dx",
                      attrs(fmt::format("input_size=[{},{}], ", padded, padded)), large);
  if (apart) text += fmt::format("  %dx = crop2d(%dp) {{pads=[{}]}} : {} gradients\n", outer, image);
  return graph_of(text + "  output %y\n  output %dw\n  output %db\n  output %dx\n");
}

int count(const Graph& graph, const std::string& op) {
  return static_cast<int>(
      std::count_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) { return node.op == op; }));
}

void expect_pads(const Graph& graph, const std::vector<int64_t>& pads) {
  for (const Node& node : graph.nodes) {
    if (!node.op.starts_with("conv2d")) continue;
    EXPECT_EQ(node.attrs.list("pads"), pads) << print(graph);
  }
}

TEST(PadEvenly, TakesTheSurplusOutOfAllThree) {
  const Graph graph = convolution("", "1,2,0,3", 8, 8, 5);
  const Graph even = pad_evenly(graph, EvenDevice());
  expect_pads(even, {1, 1, 0, 0});
  EXPECT_EQ(count(even, "pad2d"), 2);
  EXPECT_EQ(count(even, "crop2d"), 1);
  expect_same_outputs(graph, even);
}

TEST(PadEvenly, LeavesEvenPadding) {
  const Graph graph = convolution("", "1,1,1,1", 8, 8, 4);
  EXPECT_EQ(print(pad_evenly(graph, EvenDevice())), print(graph));
}

TEST(PadEvenly, AsksTheDevice) {
  const Graph graph = convolution("", "0,1,0,1", 8, 8, 4);
  EXPECT_EQ(print(pad_evenly(graph, FakeDevice())), print(graph));
}

TEST(FoldPadding, TakesThePaddingIntoAllThree) {
  for (const auto& [outer, pads, padded, out, wanted] :
       {std::tuple{"3,3,3,3", "0,0,0,0", 14, 6, std::vector<int64_t>{3, 3, 3, 3}},
        std::tuple{"0,1,1,0", "1,0,0,1", 9, 4, std::vector<int64_t>{1, 1, 1, 1}}}) {
    const Graph graph = convolution(outer, pads, 8, padded, out);
    const Graph folded = fold_padding(graph, EvenDevice());
    EXPECT_EQ(folded.nodes.size(), 3U) << print(folded);
    expect_pads(folded, wanted);
    expect_same_outputs(graph, folded);
  }
}

TEST(FoldPadding, LeavesWhatWouldBeUneven) {
  const Graph graph = convolution("0,1,0,1", "0,0,0,0", 8, 9, 4);
  EXPECT_EQ(print(fold_padding(graph, EvenDevice())), print(graph));
}

TEST(FoldPadding, AsksTheDevice) {
  const Graph graph = convolution("1,1,1,1", "0,0,0,0", 8, 10, 4);
  EXPECT_EQ(print(fold_padding(graph, FakeDevice())), print(graph));
}

// The padded image is needed anyway, so folding it into one reader would only keep the original image live longer.
TEST(FoldPadding, LeavesAnImageThatSomebodyElseReads) {
  Graph graph = convolution("1,1,1,1", "0,0,0,0", 8, 10, 4);
  graph.outputs.push_back(graph.find("p"));
  const Graph folded = fold_padding(graph, EvenDevice());
  EXPECT_EQ(count(folded, "pad2d"), 1) << print(folded);
  expect_same_outputs(graph, folded);
}

// On a GPU profile: convolutions with few channels take any padding, others only even padding. Only the plain loop
// kernels take the rest.
TEST(FoldPadding, PlacesItWhereTheGpuTakesIt) {
  const auto gpu = make_planned_gpu(require(cuda::card_from_profile("h200-141g")));
  const char* const text = R"(graph "g"
  %x = input f32[2,8,8,{0}] inputs
  %w = input f32[3,3,{0},16] weights persistent
  %p = pad2d(%x) {{pads=[0,1,0,1]}} : f32[2,9,9,{0}] activations
  %y = conv2d(%p, %w) {{dilations=[1,1], groups=1, pads=[0,0,0,0], strides=[2,2]}} : f32[2,4,4,16] activations
  output %y
)";
  const auto thin = require(lower(graph_of(fmt::format(fmt::runtime(text), 3)), gpu->device()));
  EXPECT_EQ(count(thin.graph, "pad2d"), 0) << print(thin.graph);
  const auto wide = require(lower(graph_of(fmt::format(fmt::runtime(text), 32)), gpu->device()));
  EXPECT_EQ(count(wide.graph, "pad2d"), 1) << print(wide.graph);
}

// relu, pad2d and max pooling with their gradients. The image has whole windows of zeros, also at the edge.
Graph pooled(const std::string& activation) {
  return graph_of(R"(graph "g"
  %x = input f64[1,6,6,2] inputs
  %dq = input f64[1,3,3,2] inputs
  %r = )" + activation +
                  R"(
  %p = pad2d(%r) {pads=[1,1,1,1]} : f64[1,8,8,2] activations
  %q, %i = max_pool2d(%p) {pads=[0,0,0,0], pool=[3,3], strides=[2,2]} : f64[1,3,3,2] activations, u8[1,3,3,2] activations
  %dp = max_pool2d_grad(%dq, %i) {input_size=[8,8], pads=[0,0,0,0], pool=[3,3], strides=[2,2]} : f64[1,8,8,2] gradients
  %dr = crop2d(%dp) {pads=[1,1,1,1]} : f64[1,6,6,2] gradients
  %dx = relu_grad(%dr, %r) {from="output"} : f64[1,6,6,2] gradients
  output %q
  output %dx
)");
}

TEST(FoldPadding, TakesZerosAroundARectifiedImageIntoItsPooling) {
  const Graph before = pooled("relu(%x) : f64[1,6,6,2] activations");
  const Graph after = fold_padding(before, EvenDevice());
  EXPECT_EQ(count(after, "pad2d"), 0);
  EXPECT_EQ(count(after, "crop2d"), 0);
  expect_same_outputs(before, after);
}

TEST(FoldPadding, LeavesZerosThatMayExceedWhatIsInside) {
  const Graph before = pooled("tanh(%x) : f64[1,6,6,2] activations");
  EXPECT_EQ(count(fold_padding(before, EvenDevice()), "pad2d"), 1);
}

// relu(batch_norm_apply(x)) and its gradients.
TEST(MaskFromNormalised, ReadsXInsteadOfTheRectified) {
  const Graph before = graph_of(R"(graph "g"
  %x = input f64[2,3,3,4] inputs
  %mean = input f64[4] inputs
  %raw = input f64[4] inputs
  %gamma = input f64[4] inputs
  %dy = input f64[2,3,3,4] inputs
  %var = multiply(%raw, %raw) : f64[4] activations
  %z = batch_norm_apply(%x, %mean, %var, %gamma) {epsilon=0.001, scale=true} : f64[2,3,3,4] activations
  %y = relu(%z) : f64[2,3,3,4] activations
  %m = relu_grad(%dy, %y) {from="output"} : f64[2,3,3,4] gradients
  %dgamma, %dbeta = batch_norm_grad_stats(%m, %x, %mean, %var) {epsilon=0.001} : f64[4] gradients, f64[4] gradients
  %dx = batch_norm_input_grad(%m, %x, %mean, %var, %dgamma, %dbeta, %gamma) {epsilon=0.001, scale=true} : f64[2,3,3,4] gradients
  output %y
  output %dgamma
  output %dx
)");
  const Graph after = mask_from_normalised(before);
  EXPECT_EQ(count(after, "batch_norm_apply"), 3);
  EXPECT_EQ(count(after, "relu_grad"), 2);
  const ValueId y = after.outputs[0];
  EXPECT_TRUE(readers_of(after)[static_cast<size_t>(y)].empty());  // no node reads it for the mask
  expect_same_outputs(before, after);
}

}  // namespace
}  // namespace plimsoll::engine::testing
