// Gradients of whole graphs, compared with finite differences through the float64 reference. Also checks which
// gradients are not computed.
#include "autodiff/gradient.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "backends/reference/reference.h"
#include "base/philox.h"
#include "ops/build.h"
#include "ops/op.h"

namespace plimsoll::engine {
namespace {

GraphBuilder builder() {
  Graph graph;
  graph.name = "test";
  return make_builder(std::move(graph));
}

using Values = std::map<std::string, std::vector<double>>;

// Runs a graph node by node, with separate memory for every value. Integer inputs are given as doubles too.
std::map<ValueId, std::vector<double>> run(const Graph& graph, const Values& inputs) {
  const auto backend = make_reference_backend();
  std::map<ValueId, std::vector<std::byte>> memory;
  for (size_t v = 0; v < graph.values.size(); ++v)
    memory[static_cast<ValueId>(v)].resize(static_cast<size_t>(graph.values[v].type.bytes()));
  for (ValueId id : graph.inputs) {
    const Value& value = graph.value(id);
    const std::vector<double>& given = inputs.at(value.name);
    for (size_t i = 0; i < given.size(); ++i) {
      if (value.type.dtype == DType::kInt32)
        reinterpret_cast<int32_t*>(memory[id].data())[i] = static_cast<int32_t>(given[i]);
      else
        reinterpret_cast<double*>(memory[id].data())[i] = given[i];
    }
  }
  for (const Node& node : graph.nodes) {
    std::vector<void*> in, out;
    for (ValueId id : node.inputs) in.push_back(memory[id].data());
    for (ValueId id : node.outputs) out.push_back(memory[id].data());
    const KernelOffer offer = require(backend->device().offer(graph, node));
    require(backend->bind({graph, node, offer.kernel, in, out, nullptr, 0}))->run();
  }
  std::map<ValueId, std::vector<double>> results;
  for (auto& [id, bytes] : memory) {
    if (graph.type(id).dtype != DType::kFloat64) continue;
    results[id].resize(bytes.size() / sizeof(double));
    std::memcpy(results[id].data(), bytes.data(), bytes.size());
  }
  return results;
}

std::vector<double> draw(const Shape& shape, uint32_t stream) {
  std::vector<double> list(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < list.size(); ++i)
    list[i] = 2.0 * static_cast<double>(Philox::unit(Philox::draw(5, {static_cast<uint32_t>(i), stream, 0, 0})[0])) - 1;
  return list;
}

struct Problem {
  GraphBuilder b = builder();
  Values inputs;
  std::vector<ValueId> wrt;

  ValueId weight(const std::string& name, Shape shape, bool trained = true) {
    inputs[name] = draw(shape, static_cast<uint32_t>(inputs.size()));
    const ValueId id = b.persistent(name, {DType::kFloat64, std::move(shape)}, Category::kWeights);
    if (trained) wrt.push_back(id);
    return id;
  }
  ValueId input(const std::string& name, Shape shape) {
    inputs[name] = draw(shape, static_cast<uint32_t>(inputs.size()));
    return b.input(name, {DType::kFloat64, std::move(shape)}, Category::kInputs, false);
  }
};

// Compares every element of every gradient with (f(w + h) - f(w - h)) / 2h. The graph is smooth at the drawn inputs, so
// the error is about h^2 = 1e-10 times the third derivative, plus 1e-16 / h of rounding.
void expect_gradients(Problem& problem, ValueId loss) {
  const std::vector<ValueId> gradients = append_gradients(problem.b, loss, problem.wrt);
  ASSERT_TRUE(problem.b.status()) << to_text(problem.b.status().error());
  const Graph graph = problem.b.take();
  ASSERT_TRUE(verify(graph)) << print(graph);
  const auto results = run(graph, problem.inputs);
  constexpr double kStep = 1e-5;
  for (size_t k = 0; k < problem.wrt.size(); ++k) {
    const std::string name = graph.value(problem.wrt[k]).name;
    ASSERT_NE(gradients[k], kNone) << name;
    const std::vector<double>& got = results.at(gradients[k]);
    double most = 0;
    for (double v : got) most = std::max(most, std::abs(v));
    EXPECT_GT(most, 1e-4) << name;
    for (size_t i = 0; i < got.size(); ++i) {
      Values up = problem.inputs, down = problem.inputs;
      up[name][i] += kStep;
      down[name][i] -= kStep;
      const double want = (run(graph, up).at(loss)[0] - run(graph, down).at(loss)[0]) / (2 * kStep);
      EXPECT_NEAR(got[i], want, 1e-8 * std::max(most, 1.0)) << name << "[" << i << "]";
    }
  }
}

ValueId total(Problem& p, ValueId x) {
  const ValueId one = p.b.persistent("one", {DType::kFloat64, {}}, Category::kInputs);
  p.inputs["one"] = {1};
  const auto rows = static_cast<int64_t>(p.b.graph().type(x).shape.elements());
  return p.b.add1("weighted_sum", {p.b.add1("reshape", {x}, {{"shape", std::vector<int64_t>{rows}}}), one},
                  {{"weighted", false}});
}

TEST(Gradients, OfAGraphWithBranchesAgreeWithFiniteDifferences) {
  Problem p;
  const ValueId x = p.input("x", {3, 4});
  const ValueId w = p.weight("w", {4, 5}), v = p.weight("v", {5, 5}), b = p.weight("b", {5}), g = p.weight("g", {5});
  const ValueId h = p.b.add1("tanh", {p.b.add1("bias_add", {p.b.add1("matmul", {x, w}), b})});
  // Two branches from h that join again; one of them uses h's weights a second time.
  const ValueId left = p.b.add1("gelu", {p.b.add1("matmul", {h, v})});
  const ValueId right = p.b.add("layer_norm", {p.b.add1("multiply", {h, h}), g, b},
                                {{"epsilon", 1e-3}, {"scale", true}, {"center", true}})[0];
  const ValueId joined =
      p.b.add1("concat", {p.b.add1("add", {left, right}), p.b.add1("silu", {h})}, {{"axis", int64_t{1}}});
  expect_gradients(p, total(p, p.b.add1("multiply", {joined, p.b.add1("sigmoid", {joined})})));
}

TEST(Gradients, OfConvolutionPoolingAndSharedWeightsAgreeWithFiniteDifferences) {
  Problem p;
  const ValueId x = p.input("x", {2, 5, 5, 2});
  const ValueId w = p.weight("w", {3, 3, 2, 2}), gamma = p.weight("gamma", {2}), beta = p.weight("beta", {2});
  const Attrs same = {{"strides", std::vector<int64_t>{1, 1}},
                      {"pads", std::vector<int64_t>{1, 1, 1, 1}},
                      {"dilations", std::vector<int64_t>{1, 1}},
                      {"groups", int64_t{1}}};
  const ValueId first = p.b.add1("tanh", {p.b.add1("conv2d", {x, w}, same)});
  const ValueId second = p.b.add1("conv2d", {first, w}, same);  // the same kernel a second time
  const auto stats = p.b.add("batch_norm_stats", {second});
  const ValueId normal = p.b.add1("batch_norm_apply", {second, stats[0], stats[1], gamma, beta},
                                  {{"epsilon", 1e-3}, {"scale", true}, {"center", true}, {"batch_stats", true}});
  const ValueId pooled = p.b.add1("global_avg_pool2d", {p.b.add1("multiply", {p.b.add1("add", {normal, x}), first})});
  expect_gradients(p, total(p, p.b.add1("multiply", {pooled, pooled})));
}

TEST(Gradients, OfAValueReadTwiceAreSummedOnce) {
  Problem p;
  const ValueId w = p.weight("w", {3});
  const ValueId sum = p.b.add1("add", {w, w});
  const ValueId loss = total(p, sum);
  const std::vector<ValueId> gradients = append_gradients(p.b, loss, p.wrt);
  const Graph graph = p.b.take();
  EXPECT_EQ(run(graph, p.inputs).at(gradients[0]), (std::vector<double>{2, 2, 2}));
}

TEST(Gradients, OfFrozenWeightsCostNoNode) {
  const auto nodes_with = [](bool train_first) {
    Problem p;
    const ValueId x = p.input("x", {3, 4});
    const ValueId frozen = p.weight("frozen", {4, 4}, train_first), trained = p.weight("trained", {4, 2});
    const ValueId y = p.b.add1("matmul", {p.b.add1("tanh", {p.b.add1("matmul", {x, frozen})}), trained});
    const ValueId loss = total(p, y);
    const size_t before = p.b.graph().nodes.size();
    append_gradients(p.b, loss, p.wrt);
    std::map<std::string, int> ops;
    for (size_t n = before; n < p.b.graph().nodes.size(); ++n) ++ops[p.b.graph().nodes[n].op];
    return ops;
  };
  auto frozen = nodes_with(false), all = nodes_with(true);
  EXPECT_EQ(frozen["tanh_grad"], 0);
  EXPECT_EQ(frozen["matmul"], 1);  // the gradient of the trained weight
  EXPECT_EQ(all["tanh_grad"], 1);
  EXPECT_EQ(all["matmul"], 3);  // the gradients of both weights and of the value between them
}

TEST(Gradients, AreNoneWhereNoPathLeadsToTheLoss) {
  Problem p;
  const ValueId used = p.weight("used", {3});
  p.weight("unused", {3});
  const ValueId loss = total(p, p.b.add1("tanh", {used}));
  const std::vector<ValueId> gradients = append_gradients(p.b, loss, p.wrt);
  EXPECT_NE(gradients[0], kNone);
  EXPECT_EQ(gradients[1], kNone);
}

TEST(Gradients, StandUnderTheLayerOfTheNodeTheyBelongTo) {
  Problem p;
  ValueId y = kNone;
  {
    const auto first = p.b.in_layer("first");
    y = p.b.add1("tanh", {p.weight("w", {3})});
  }
  const auto second = p.b.in_layer("second");
  const ValueId loss = total(p, y);
  const size_t before = p.b.graph().nodes.size();
  append_gradients(p.b, loss, p.wrt);
  for (size_t n = before; n < p.b.graph().nodes.size(); ++n) {
    const Node& node = p.b.graph().nodes[n];
    EXPECT_EQ(p.b.graph().value(node.outputs[0]).category, Category::kGradients);
    EXPECT_EQ(node.stage, Stage::kBackward);
    EXPECT_EQ(node.layer, node.op == "tanh_grad" ? "first" : node.op == "fill" ? "second" : node.layer);
  }
  EXPECT_EQ(p.b.tags().layer, "second");
  EXPECT_EQ(p.b.tags().stage, Stage::kForward);
}

}  // namespace
}  // namespace plimsoll::engine
