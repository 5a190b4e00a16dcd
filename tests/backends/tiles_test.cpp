// Tile programs of fused nodes against the reference of their body; results must not depend on threads, tiles or
// aliasing.
#include <gtest/gtest.h>

#include <cstring>

#include "backends/cpu/cpu.h"
#include "backends/cpu/onednn/layout.h"
#include "tests/backends/bound.h"
#include "tests/ops/harness.h"

namespace plimsoll::engine::testing {
namespace {

using Ints = std::vector<int64_t>;

// A fused node whose body has every feature: cast, channel vectors, scalars, dropout, an output that is also read
// inside the body, and both reductions at the end. Inputs: x u8, b, s, mean, var, gamma, beta, rng, first, dy.
Graph fused_graph(const Shape& shape, DType floating) {
  const int64_t c = shape.back();
  GraphBuilder b = make_builder();
  const auto input = [&](const char* name, DType dtype, Shape s) {
    return b.input(name, {dtype, std::move(s)}, Category::kInputs, false);
  };
  const ValueId x = input("x", DType::kUInt8, shape), bias = input("b", floating, {c}), s = input("s", floating, {});
  const ValueId mean = input("mean", floating, {c}), var = input("var", floating, {c});
  const ValueId gamma = input("gamma", floating, {c}), beta = input("beta", floating, {c});
  const ValueId rng = input("rng", DType::kInt64, {2}), first = input("first", DType::kInt64, {1}),
                dy = input("dy", floating, shape);
  const Attrs norm = {{"epsilon", 1e-3}, {"scale", true}, {"center", true}};
  const ValueId cast = b.add1("cast", {x}, {{"dtype", std::string(name_of(floating))}});
  const ValueId scaled = b.add1("affine", {cast}, {{"scale", 1.0 / 64}, {"offset", -2.0}});
  const ValueId biased = b.add1("bias_add", {scaled, bias});
  const ValueId normal = b.add1("batch_norm_apply", {biased, mean, var, gamma, beta}, norm);
  const ValueId active = b.add1("silu", {normal});
  const ValueId dropped = b.add1("dropout", {active, rng, first}, {{"rate", 0.3}, {"call", int64_t{2}}});
  const ValueId product = b.add1("multiply", {dropped, dy});
  const ValueId small = b.add1("scale", {product, s});
  const ValueId again = b.add1("add", {small, biased});
  const ValueId sum = b.add1("reduce_to", {again}, {{"shape", Ints{c}}});
  const auto stats = b.add("batch_norm_grad_stats", {dy, biased, mean, var}, {{"epsilon", 1e-3}});
  if (!b.status()) throw std::runtime_error(to_text(b.status().error()));
  Graph body = b.take();
  body.outputs = {dropped, again, sum, stats[0], stats[1]};
  Graph graph;
  Node node{"fused", {}, {}, {}, "", Stage::kForward, nullptr};
  for (ValueId id : body.inputs)
    node.inputs.push_back(static_cast<ValueId>(graph.values.size())), graph.values.push_back(body.value(id));
  graph.inputs = node.inputs;
  for (ValueId id : body.outputs) {
    node.outputs.push_back(static_cast<ValueId>(graph.values.size()));
    graph.values.push_back(body.value(id));
    graph.values.back().producer = 0;
  }
  node.body = std::make_shared<const Graph>(std::move(body));
  graph.nodes = {node};
  graph.outputs = node.outputs;
  return graph;
}

std::vector<Tensor> fused_inputs(const Graph& graph) {
  std::mt19937_64 random(5);
  const char* fills[] = {"labels:256", "normal", "normal",   "normal",   "positive",
                         "normal",     "normal", "step:7,9", "step:3,0", "normal"};
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < graph.inputs.size(); ++i)
    inputs.push_back(draw(graph.type(graph.inputs[i]), fills[i], random));
  return inputs;
}

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> kShapes = {{2, 3, 3, 3}, {5, 7, 7, 10}, {3, 40, 40, 16}, {4, 9, 9, 130},
                                             {7, 1500},    {1, 4097},     {9, 1}};
  return kShapes;
}

TEST(CpuTiles, AFusedPassAgreesWithTheReferenceOfItsBody) {
  const auto backend = make_cpu_backend(2);
  for (const Shape& shape : shapes()) {
    const Graph graph = fused_graph(shape, DType::kFloat32), exact = fused_graph(shape, DType::kFloat64);
    const auto inputs = fused_inputs(graph);
    std::vector<Tensor> precise;
    for (const Tensor& t : inputs) precise.push_back(rounded_as(t, DType::kFloat64));
    const auto wanted = reference_outputs(exact, exact.nodes[0], precise);
    const InPlace over_dy{9, 0};
    for (const InPlace* alias : {static_cast<const InPlace*>(nullptr), &over_dy}) {
      const auto run = run_on_backend(*backend, graph, graph.nodes[0], inputs, alias);
      ASSERT_TRUE(run) << to_text(run.error());
      EXPECT_EQ(run->damage, "");
      for (size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_LE(error_in_units(run->outputs[i], wanted[i]), 16) << to_text(shape) << " output " << i;
      }
    }
  }
}

// The bits of all outputs, computed with `threads` threads.
std::vector<std::vector<char>> bits(int threads, const Graph& graph, uint64_t seed) {
  const auto backend = make_cpu_backend(threads);
  BoundNodeUnderTest node(*backend, graph, 0);
  for (size_t i = 0; i < node.in.size(); ++i) {
    const TensorType& type = graph.type(graph.nodes[0].inputs[i]);
    if (type.dtype == DType::kFloat32) {
      fill_normal(node.input(i), type.shape.elements(), seed + i);
      if (type.shape.rank() < 2)
        std::transform(node.input(i), node.input(i) + type.shape.elements(), node.input(i),
                       [](float v) { return std::fabs(v) + 0.1F; });
    } else {
      std::memset(node.in[i], 3, static_cast<size_t>(type.bytes()));
    }
  }
  node.kernel->run();
  std::vector<std::vector<char>> result;
  for (size_t i = 0; i < node.out.size(); ++i) {
    const Bytes size = graph.type(graph.nodes[0].outputs[i]).bytes();
    result.emplace_back(node.output<char>(i), node.output<char>(i) + size);
  }
  return result;
}

TEST(CpuTiles, ResultsDoNotDependOnTheNumberOfThreads) {
  std::vector<Graph> graphs = {
      single("batch_norm_stats", {floats({16, 20, 20, 24})}, {}),
      single("matmul", {floats({50, 20000}), floats({20000, 10}), floats({10})}, {}),
      single("matmul", {floats({300, 700}), floats({300, 260})}, {{"transpose_a", true}}),
      single("squared_norm", {floats({100, 1000})}, {}),
      single("weighted_sum", {floats({70000}), floats({})}, {}),
      single("layer_norm_param_grad", {floats({500, 70}), floats({500, 70}), floats({500}), floats({500})}, {})};
  for (const Shape& shape : shapes()) graphs.push_back(fused_graph(shape, DType::kFloat32));
  for (const Graph& graph : graphs) {
    const auto one = bits(1, graph, 3);
    for (int threads : {2, 3, 5})
      EXPECT_EQ(bits(threads, graph, 3), one) << graph.nodes[0].op << " with " << threads << " threads";
  }
}

// Elements do not depend on how a kernel is cut into tiles: recomputing one sample gives the same bits as the whole.
TEST(CpuTiles, FusedAndSingleOpsGiveTheSameBits) {
  const auto backend = make_cpu_backend(2);
  const TensorType x = floats({4, 13, 13, 24}), c = floats({24});
  GraphBuilder b = make_builder();
  const ValueId in = b.input("x", x, Category::kInputs, false), bias = b.input("b", c, Category::kInputs, false);
  const ValueId biased = b.add1("bias_add", {in, bias}), y = b.add1("gelu", {biased});
  Graph body = b.take();
  body.outputs = {y};
  Graph fused;
  fused.values = {body.value(in), body.value(bias), body.value(y)};
  fused.inputs = {0, 1};
  fused.values[2].producer = 0;
  fused.nodes = {Node{"fused", {0, 1}, {2}, {}, "", Stage::kForward, std::make_shared<const Graph>(std::move(body))}};
  BoundNodeUnderTest together(*backend, fused, 0), first(*backend, single("bias_add", {x, c}, {}), 0),
      second(*backend, single("gelu", {x}, {}), 0);
  fill_normal(together.input(0), x.shape.elements(), 1);
  fill_normal(together.input(1), 24, 2);
  std::copy_n(together.input(0), x.shape.elements(), first.input(0));
  std::copy_n(together.input(1), 24, first.input(1));
  together.kernel->run();
  first.kernel->run();
  std::copy_n(first.output(0), x.shape.elements(), second.input(0));
  second.kernel->run();
  EXPECT_EQ(std::memcmp(together.out[0], second.out[0], static_cast<size_t>(x.bytes())), 0);
}

TEST(CpuLayouts, NamesRebuildTheDescriptor) {
  const auto backend = make_cpu_backend(2);
  const Attrs attrs = {{"strides", Ints{1, 1}}, {"pads", Ints{1, 1, 1, 1}}, {"dilations", Ints{1, 1}}};
  for (const auto& [w, groups] :
       {std::pair{Ints{3, 3, 32, 64}, int64_t{1}}, std::pair{Ints{3, 3, 5, 7}, int64_t{1}},
        std::pair{Ints{3, 3, 8, 32}, int64_t{4}}, std::pair{Ints{3, 3, 1, 20}, int64_t{20}}}) {
    Attrs own = attrs;
    own.set("groups", groups);
    const Graph graph = single("conv2d", {floats({2, 9, 9, w[2] * groups}), floats(w)}, own);
    const auto offer = backend->device().offer(graph, graph.nodes[0]);
    ASSERT_TRUE(offer);
    if (offer->inputs.empty() || offer->inputs[1].name.empty()) continue;  // row-major
    const Layout layout = offer->inputs[1];
    const auto rebuilt = cpu::desc_from_name(layout.name);
    ASSERT_TRUE(rebuilt) << layout.name;
    const auto again = cpu::layout_of(rebuilt->kind, rebuilt->desc);
    ASSERT_TRUE(again);
    EXPECT_EQ(again->name, layout.name);
    EXPECT_EQ(again->bytes, layout.bytes);

    Value plain = graph.value(graph.nodes[0].inputs[1]), blocked = plain;
    blocked.layout = layout.name;
    blocked.layout_bytes = layout.bytes;
    Buffer from(plain.type.bytes()), middle(layout.bytes), back(plain.type.bytes());
    fill_normal(static_cast<float*>(from.data()), plain.type.shape.elements(), 4);
    ASSERT_TRUE(reorder(*backend, plain, blocked, &from, &middle));
    ASSERT_TRUE(reorder(*backend, blocked, plain, &middle, &back));
    EXPECT_EQ(std::memcmp(from.data(), back.data(), static_cast<size_t>(plain.type.bytes())), 0) << layout.name;
  }
  for (const char* bad :
       {"oihw", "oihw:1,2,3:1,2,3:1,1,1:-", "xyz:1,1,1,1:1,1,1,1:1,1,1,1:-", "oihw:1,1,1,1:1,1,1,1:1,1,1,1:16x9"}) {
    EXPECT_FALSE(cpu::desc_from_name(bad)) << bad;
  }
}

}  // namespace
}  // namespace plimsoll::engine::testing
