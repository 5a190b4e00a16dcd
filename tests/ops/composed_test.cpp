// Properties that need several ops: the gradient through batch statistics, fused bodies, masks that do not depend on
// the split into micro-batches, and references that do not depend on the number of threads.
#include <gtest/gtest.h>
#include <omp.h>

#include "tests/ops/harness.h"

namespace plimsoll::engine::testing {
namespace {

TEST(BatchNorm, GradientGoesThroughTheStatistics) {
  GraphBuilder b = make_builder();
  const TensorType image{DType::kFloat64, Shape{3, 2, 2, 5}}, vector{DType::kFloat64, Shape{5}};
  const ValueId x = b.input("x", image, Category::kInputs, false),
                gamma = b.input("gamma", vector, Category::kWeights, false),
                beta = b.input("beta", vector, Category::kWeights, false);
  const auto stats = b.add("batch_norm_stats", {x});
  const Attrs attrs = {{"epsilon", 1e-3}, {"scale", true}, {"center", true}, {"batch_stats", true}};
  const ValueId y = b.add1("batch_norm_apply", {x, stats[0], stats[1], gamma, beta}, attrs);
  const ValueId dy = b.input("dy", image, Category::kGradients, false);
  const Node node = b.graph().nodes.back();
  const std::vector<ValueId> arrived = {dy};
  const std::vector<bool> wanted = {true, true, true, true, true};
  const auto grads = op_def("batch_norm_apply").gradient({b, node, arrived, wanted});
  EXPECT_EQ(grads[1], kNone);
  EXPECT_EQ(grads[2], kNone);
  ASSERT_TRUE(b.status());
  const Graph graph = b.take();
  std::mt19937_64 random(3);
  std::vector<Tensor> inputs;
  for (ValueId id : graph.inputs) inputs.push_back(draw(graph.type(id), "normal", random));
  const Tensor gradient = run_by_reference(graph, inputs)[static_cast<size_t>(grads[0])];
  const auto loss = [&] {
    const Tensor out = run_by_reference(graph, inputs)[static_cast<size_t>(y)];
    double sum = 0;
    for (size_t i = 0; i < out.values.size(); ++i) sum += out.values[i] * inputs[3].values[i];
    return sum;
  };
  for (size_t i = 0; i < gradient.values.size(); ++i) {
    const double at = inputs[0].values[i];
    inputs[0].values[i] = at + 1e-5;
    const double above = loss();
    inputs[0].values[i] = at - 1e-5;
    const double below = loss();
    inputs[0].values[i] = at;
    EXPECT_NEAR(gradient.values[i], (above - below) / 2e-5, 1e-6);
  }
}

TEST(Fused, RunsItsBodyAndMayLieOverItsInput) {
  const TensorType image{DType::kFloat64, Shape{2, 3}}, vector{DType::kFloat64, Shape{3}};
  GraphBuilder body = make_builder();
  const ValueId x = body.input("x", image, Category::kInputs, false),
                c = body.input("c", vector, Category::kInputs, false);
  const ValueId sum = body.add1("bias_add", {x, c});
  const ValueId y = body.add1("relu", {sum});
  body.output(y);
  body.output(body.add1("reduce_to", {body.add1("multiply", {y, x})}, {{"shape", std::vector<int64_t>{3}}}));
  const Graph inner = body.take();
  double data[] = {1, -2, 3, -4, 5, -6}, bias[] = {0.5, 0.5, -4}, reduced[3];
  const std::vector<TensorView> inputs = {{image, data}, {vector, bias}}, outputs = {{image, data}, {vector, reduced}};
  op_def("fused").reference({inputs, outputs, Attrs{}, &inner});
  EXPECT_EQ(std::vector<double>(data, data + 6), (std::vector<double>{1.5, 0, 0, 0, 5.5, 0}));
  EXPECT_EQ(std::vector<double>(reduced, reduced + 3), (std::vector<double>{1.5, 27.5, 0}));
}

Tensor dropped(int64_t samples, int64_t first, int64_t step, int64_t call) {
  const TensorType type{DType::kFloat64, Shape{samples, 50}};
  GraphBuilder b = make_builder();
  const std::vector<ValueId> ids = {b.input("x", type, Category::kInputs, false),
                                    b.input("rng", {DType::kInt64, Shape{2}}, Category::kInputs, true),
                                    b.input("first", {DType::kInt64, Shape{1}}, Category::kInputs, true)};
  b.add("dropout", ids, {{"rate", 0.3}, {"call", call}});
  const Tensor ones{type, std::vector<double>(static_cast<size_t>(samples * 50), 1.0)};
  return reference_outputs(b.graph(), b.graph().nodes[0],
                           {ones,
                            {{DType::kInt64, Shape{2}}, {99, static_cast<double>(step)}},
                            {{DType::kInt64, Shape{1}}, {static_cast<double>(first)}}})[0];
}

TEST(Dropout, MaskDoesNotDependOnTheCutIntoMicroBatches) {
  const Tensor whole = dropped(8, 0, 1, 0), front = dropped(5, 0, 1, 0), back = dropped(3, 5, 1, 0);
  auto joined = front.values;
  joined.insert(joined.end(), back.values.begin(), back.values.end());
  EXPECT_EQ(joined, whole.values);
}

TEST(Dropout, MaskChangesWithStepAndCall) {
  EXPECT_NE(dropped(8, 0, 1, 0).values, dropped(8, 0, 2, 0).values);
  EXPECT_NE(dropped(8, 0, 1, 0).values, dropped(8, 0, 1, 1).values);
}

TEST(Dropout, KeepsTheMean) {
  const Tensor y = dropped(400, 0, 1, 0);
  double sum = 0;
  for (double v : y.values) sum += v;
  // With 20000 draws, the standard deviation of the mean is 0.0046.
  EXPECT_NEAR(sum / static_cast<double>(y.values.size()), 1.0, 0.02);
}

TEST(Reference, DoesNotDependOnTheNumberOfThreads) {
  const OpDef& op = op_def("conv2d");
  const OpCase big{
      "big",
      {{DType::kFloat32, Shape{4, 20, 20, 33}}, {DType::kFloat32, Shape{3, 3, 33, 70}}, {DType::kFloat32, Shape{70}}},
      op.cases[0].attrs,
      {"normal", "normal", "normal"},
      {0, 1, 2}};
  const auto made = graph_of(op, big, DType::kFloat64);
  ASSERT_TRUE(made);
  auto inputs = draw_inputs(op, big, DType::kFloat64);
  std::mt19937_64 random(7);
  inputs.push_back(draw(made->graph.type(made->dy), "normal", random));
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  const auto alone = run_by_reference(made->graph, inputs);
  omp_set_num_threads(3);
  const auto three = run_by_reference(made->graph, inputs);
  omp_set_num_threads(threads);
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_EQ(alone[i].values, three[i].values) << "value " << i;
}

}  // namespace
}  // namespace plimsoll::engine::testing
