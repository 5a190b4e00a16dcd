// Fused nodes read a repeated tensor from the smaller one, on every backend that fuses: the same numbers as with the
// repetition in memory, and the repetition is no value of the graph.
#include <gtest/gtest.h>

#include "backends/registry.h"
#include "lower/lower.h"
#include "tests/ops/harness.h"

namespace plimsoll::engine::testing {
namespace {

struct Case {
  Shape small, large;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases = {{{2, 1, 1, 16}, {2, 5, 3, 16}},  // squeeze-excite
                                           {{3, 1, 1, 5}, {3, 4, 2, 5}},
                                           {{2, 5, 3, 1}, {2, 5, 3, 24}},
                                           {{2, 5, 3, 1}, {2, 5, 3, 7}},
                                           {{2, 1, 1, 1}, {2, 5, 3, 8}},
                                           {{1, 5, 3, 8}, {4, 5, 3, 8}},
                                           {{5, 1, 8}, {2, 5, 3, 8}},
                                           {{2, 1, 3, 1}, {2, 5, 3, 6}},
                                           {{8}, {3, 9, 8}},
                                           {{1}, {3, 9, 8}},
                                           {{}, {3, 9, 8}},
                                           {{3, 9, 8}, {3, 9, 8}},
                                           {{3, 1, 1, 40}, {3, 20, 20, 40}},
                                           {{1, 1, 64, 64, 1}, {2, 3, 64, 64, 4}}};
  return kCases;
}

// tanh(x) * small + small, with both repetitions in the graph, and a channel sum of it.
Graph graph_of(const Case& one, DType dtype, bool with_sum) {
  GraphBuilder b = make_builder();
  const ValueId x = b.input("x", {dtype, one.large}, Category::kInputs, false);
  const ValueId small = b.input("small", {dtype, one.small}, Category::kInputs, false);
  const ValueId wide = b.add1("broadcast", {small}, {{"shape", one.large.dims}});
  const ValueId product = b.add1("multiply", {b.add1("tanh", {x}), wide});
  const ValueId sum = b.add1("add", {product, wide});
  b.output(sum);
  if (with_sum) b.output(b.add1("reduce_to", {sum}, {{"shape", std::vector<int64_t>{one.large.back()}}}));
  return b.take();
}

struct UnderTest {
  const char *name, *backend;
  DType dtype;
  double units;  // of 2^-24 of the largest element
};
constexpr UnderTest kBackends[] = {{"cpu", "cpu", DType::kFloat32, 16},
                                   {"gpu", "gpu", DType::kFloat32, 16},
                                   {"gpu_bfloat16", "gpu", DType::kBFloat16, 3 * 0x1p16},
                                   {"gpu_float16", "gpu", DType::kFloat16, 3 * 0x1p13}};

class FusedBroadcast : public ::testing::TestWithParam<UnderTest> {};

TEST_P(FusedBroadcast, ReadsTheSmallerTensorInPlace) {
  const auto& [name, backend_name, dtype, units] = GetParam();
  if (!backend_named(backend_name).built || !backend_named(backend_name).available()) GTEST_SKIP() << "not here";
  const auto backend = require(open_backend(backend_name, BackendOptions{2, 0, false, false, 0, ""}));
  for (const Case& one : cases())
    for (const bool with_sum : {false, true}) {
      const std::string where = fmt::format("[{}] to [{}] {}", to_text(one.small), to_text(one.large), with_sum);
      const Graph graph = graph_of(one, dtype, with_sum), exact = graph_of(one, DType::kFloat64, with_sum);
      const Graph fused = fuse_elementwise(graph, backend->device());
      ASSERT_TRUE(verify(fused)) << where;
      ASSERT_EQ(fused.nodes.size(), 1U) << where << print(fused);
      std::mt19937_64 random(3);
      std::vector<Tensor> inputs, wide;
      for (ValueId id : graph.inputs) {
        const Tensor drawn = draw(graph.type(id), "normal", random);
        inputs.push_back(rounded_as(drawn, dtype));
        wide.push_back(rounded_as(drawn, DType::kFloat64, dtype));
      }
      const auto run = run_on_backend(*backend, fused, fused.nodes[0], inputs);
      ASSERT_TRUE(run) << where << run.error().what;
      EXPECT_EQ(run->damage, "") << where;
      const auto wanted = run_by_reference(exact, wide);
      for (size_t o = 0; o < exact.outputs.size(); ++o) {
        const size_t at = fused.nodes[0].outputs[o] == fused.outputs[o] ? o : 1 - o;
        EXPECT_LE(error_in_units(run->outputs[at], wanted[static_cast<size_t>(exact.outputs[o])]), units)
            << where << " output " << o;
      }
    }
}

// The forward product and a product of the backward pass read the same repetition: it is made for neither.
TEST(FuseBroadcast, EachReaderRepeatsForItself) {
  if (!backend_named("cpu").built) GTEST_SKIP() << "needs the CPU backend";
  const auto backend = require(open_backend("cpu", BackendOptions{2, 0, false, false, 0, ""}));
  const Graph graph = require(parse_graph(R"(graph "g"
  %x = input f32[2,4,4,8] inputs
  %s = input f32[2,1,1,8] inputs
  %w = broadcast(%s) {shape=[2,4,4,8]} : f32[2,4,4,8] activations
  %y = multiply(%x, %w) : f32[2,4,4,8] activations
  %z = softmax(%y) : f32[2,4,4,8] activations
  %dx = multiply(%z, %w) : f32[2,4,4,8] gradients stage=backward
  output %dx
)"));
  const Graph fused = fuse_elementwise(graph, backend->device());
  ASSERT_TRUE(verify(fused));
  for (const Node& node : fused.nodes) {
    EXPECT_NE(node.op, "broadcast");
    EXPECT_EQ(node.outputs.size(), 1U) << print(fused);
  }
}

// The gradient of squeeze-excite: a product and its sums over each image, in one pass.
TEST_P(FusedBroadcast, SumsSegmentsInThePassThatMultiplies) {
  const auto& [name, backend_name, dtype, units] = GetParam();
  if (!backend_named(backend_name).built || !backend_named(backend_name).available()) GTEST_SKIP() << "not here";
  const auto backend = require(open_backend(backend_name, BackendOptions{2, 0, false, false, 0, ""}));
  const auto graph_in = [&](const Case& one, DType in) {
    GraphBuilder b = make_builder();
    const ValueId x = b.input("x", {in, one.large}, Category::kInputs, false);
    const ValueId dy = b.input("dy", {in, one.large}, Category::kInputs, false);
    const ValueId small = b.input("small", {in, one.small}, Category::kInputs, false);
    b.output(b.add1("multiply", {dy, b.add1("broadcast", {small}, {{"shape", one.large.dims}})}));
    b.output(b.add1("reduce_to", {b.add1("multiply", {dy, x})}, {{"shape", one.small.dims}}));
    return b.take();
  };
  for (const Case& one : {Case{{2, 1, 1, 16}, {2, 5, 3, 16}}, Case{{3, 1, 1, 5}, {3, 4, 2, 5}},
                          Case{{40, 1, 1, 24}, {40, 14, 14, 24}}, Case{{3, 1, 1, 1500}, {3, 2, 3, 1500}},
                          Case{{2, 3, 1, 8}, {2, 3, 70, 8}}, Case{{1, 1, 1, 32}, {5, 9, 9, 32}}}) {
    const std::string where = fmt::format("[{}] of [{}]", to_text(one.small), to_text(one.large));
    const Graph graph = graph_in(one, dtype), exact = graph_in(one, DType::kFloat64);
    const Graph fused = fuse_elementwise(graph, backend->device());
    ASSERT_TRUE(verify(fused)) << where;
    std::mt19937_64 random(3);
    std::vector<Tensor> inputs, wide;
    for (ValueId id : graph.inputs) {
      const Tensor drawn = draw(graph.type(id), "normal", random);
      inputs.push_back(rounded_as(drawn, dtype));
      wide.push_back(rounded_as(drawn, DType::kFloat64, dtype));
    }
    const auto wanted = run_by_reference(exact, wide);
    std::vector<Tensor> values(fused.values.size());
    for (size_t i = 0; i < fused.inputs.size(); ++i) values[static_cast<size_t>(fused.inputs[i])] = inputs[i];
    bool sums = false;
    for (const Node& node : fused.nodes) {
      std::vector<Tensor> reads;
      for (ValueId id : node.inputs) reads.push_back(values[static_cast<size_t>(id)]);
      const auto run = run_on_backend(*backend, fused, node, reads);
      ASSERT_TRUE(run) << where << run.error().what;
      EXPECT_EQ(run->damage, "") << where;
      for (size_t o = 0; o < node.outputs.size(); ++o) values[static_cast<size_t>(node.outputs[o])] = run->outputs[o];
      for (size_t n = 0; node.body && n < node.body->nodes.size(); ++n)
        sums = sums || node.body->nodes[n].op == "reduce_to";
    }
    EXPECT_TRUE(sums) << where << print(fused);
    for (size_t o = 0; o < exact.outputs.size(); ++o)
      EXPECT_LE(
          error_in_units(values[static_cast<size_t>(fused.outputs[o])], wanted[static_cast<size_t>(exact.outputs[o])]),
          units)
          << where << " output " << o;
  }
}

// A node that needs a sum of the whole group waits for it, also if it reads it through others.
TEST(FuseBroadcast, DoesNotReadASumOfItsOwnGroup) {
  if (!backend_named("cpu").built) GTEST_SKIP() << "needs the CPU backend";
  const auto backend = require(open_backend("cpu", BackendOptions{2, 0, false, false, 0, ""}));
  const Graph graph = require(parse_graph(R"(graph "g"
  %x = input f32[6,8] inputs
  %y = tanh(%x) : f32[6,8] activations
  %s = reduce_to(%y) {shape=[8]} : f32[8] activations
  %w = broadcast(%s) {shape=[6,8]} : f32[6,8] activations
  %z = multiply(%y, %w) : f32[6,8] activations
  output %z
)"));
  const Graph fused = fuse_elementwise(graph, backend->device());
  ASSERT_TRUE(verify(fused));
  for (const Node& node : fused.nodes) {
    const auto offer = backend->device().offer(fused, node);
    EXPECT_TRUE(offer) << (offer ? "" : offer.error().what);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, FusedBroadcast, ::testing::ValuesIn(kBackends),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace plimsoll::engine::testing
