// References compared with float64 results of Keras 3.15.1 on TensorFlow 2.21, where definitions differ between
// libraries: clipping and normalising of probabilities, smoothing, the kinks of relu, half-pixel centres, optimizers.
// TensorFlow resizes images only in float32, which explains the tolerance there.
#include <gtest/gtest.h>

#include "tests/ops/harness.h"

namespace plimsoll::engine::testing {
namespace {

using Values = std::vector<double>;
constexpr double kFloat32 = 1e-7;

Tensor f64(std::initializer_list<int64_t> dims, Values values) {
  return {{DType::kFloat64, Shape(dims)}, std::move(values)};
}

std::vector<Tensor> run(const std::string& op, const std::vector<Tensor>& inputs, const Attrs& attrs) {
  GraphBuilder b = make_builder();
  std::vector<ValueId> ids;
  for (const Tensor& t : inputs) ids.push_back(b.input("x", t.type, Category::kInputs, false));
  b.add(op, ids, attrs);
  EXPECT_TRUE(b.status()) << to_text(b.status().error());
  return reference_outputs(b.graph(), b.graph().nodes[0], inputs);
}

void expect_near(const Tensor& got, const Values& wanted, double tolerance) {
  ASSERT_EQ(got.values.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i)
    EXPECT_NEAR(got.values[i], wanted[i], tolerance * std::max(1.0, std::fabs(wanted[i]))) << "element " << i;
}

const Tensor kProbabilities = f64({3, 3}, {0.2, 0.5, 0.1, 0.0, 1.5, 0.3, 1e-9, 0.4, 0.6});
const Tensor kTargets = f64({3, 3}, {0, 1, 0, 1, 0, 0, 0.3, 0.3, 0.4});
const Tensor kLabels = {{DType::kInt32, Shape{3}}, {1, 0, 2}};
const Tensor kLogits = f64({3, 3}, {1, -2, 0.5, 50, 0, -50, 0, 0, 0});
const Tensor kOnes = f64({3}, {1, 1, 1});

struct LossCase {
  std::string op;
  Tensor x, target;
  Attrs attrs;
  Values loss, gradient;
};

TEST(KerasNumbers, Losses) {
  const std::vector<LossCase> cases = {
      {"cross_entropy",
       kProbabilities,
       kTargets,
       {},
       {0.4700036292457355, 16.11809565095832, 5.314646165056139},
       {1.25, -0.75, 1.25, 0, 0, 0, 0.6999999992999999, -0.0500000007, 0.03333333263333316}},
      {"cross_entropy",
       kProbabilities,
       kTargets,
       {{"label_smoothing", 0.1}},
       {0.5541945840560106, 15.109358641761833, 5.368021948837141},
       {1.083333333333334, -0.6166666666666665, 0.9166666666666672, 0.03703703703703703, 0.01481481481481481,
        -0.07407407407407408, 0.69666666597, -0.06166666736333337, 0.04111111041444437}},
      {"cross_entropy",
       kProbabilities,
       kLabels,
       {{"sparse", true}},
       {0.47000362924573563, 16.380459915425813, 0.5108257237659858},
       {1.25, -0.75, 1.25, 0, 0, 0.7692307692307693, 0, 0.9999999000000102, -0.6666667666666567}},
      {"binary_cross_entropy",
       kProbabilities,
       kTargets,
       {{"label_smoothing", 0.2}},
       {0.46000104712586415, 9.81799230739205, 2.2916105781057747},
       {0.20833333333333334, -0.5333333333333333, 0, 0, 0, 0.31746031746031744, 0, 0.08333333333333343, 0.25}},
      {"binary_cross_entropy",
       kLogits,
       kTargets,
       {{"from_logits", true}},
       {1.471422227580434, 0.23104906018664842, 0.6931471805599453},
       {0.24368619287666829, -0.29359902599262744, 0.20748644373395150, 0, 0.16666666666666666, 0, 0.0666666666666666,
        0.0666666666666666, 0.0333333333333333}},
      {"softmax_cross_entropy",
       kLogits,
       kTargets,
       {},
       {3.5045969023422834, 0, 1.0986122886681098},
       {0.60374889614862581, -0.96994111243042602, 0.36619221628180021, 0, 0, 0, 0.0333333333333333, 0.0333333333333333,
        -0.0666666666666667}}};
  for (const LossCase& c : cases) {
    SCOPED_TRACE(c.op);
    expect_near(run(c.op, {c.x, c.target}, c.attrs)[0], c.loss, 1e-12);
    expect_near(run(c.op + "_grad", {kOnes, c.x, c.target}, c.attrs)[0], c.gradient, 1e-12);
  }
}

TEST(KerasNumbers, ReluWithSlopeCeilingAndThreshold) {
  const Tensor x = f64({6}, {-3, -0.5, 0.1, 0.3, 0.9, 7}), ones = f64({6}, {1, 1, 1, 1, 1, 1});
  Attrs attrs = {{"negative_slope", 0.1}, {"max_value", 0.8}, {"threshold", 0.2}};
  expect_near(run("relu", {x}, attrs)[0], {-0.32, -0.07, -0.01, 0.3, 0.800000011920929, 0.800000011920929}, 1e-15);
  attrs.set("from", "input");
  expect_near(run("relu_grad", {ones, x}, attrs)[0], {0.1, 0.1, 0.1, 1, 0, 0}, 0);
  attrs = {{"negative_slope", 0.1}, {"max_value", 0.8}, {"threshold", -1.0}};
  expect_near(run("relu", {x}, attrs)[0], {-0.2, 0, 0.1, 0.3, 0.800000011920929, 0.800000011920929}, 1e-15);
  attrs.set("from", "input");
  expect_near(run("relu_grad", {ones, x}, attrs)[0], {0.1, 0, 1, 1, 0, 0}, 0);
}

TEST(KerasNumbers, BilinearUpsampling) {
  expect_near(run("upsample2d", {f64({1, 2, 2, 1}, {1, 2, 4, 8})},
                  {{"size", std::vector<int64_t>{2, 3}}, {"interpolation", "bilinear"}})[0],
              {1,    1,    1.333333373, 1.666666746, 2,   2,   1.75, 1.75, 2.333333492, 2.916666746, 3.5, 3.5,
               3.25, 3.25, 4.333333492, 5.416666985, 6.5, 6.5, 4,    4,    5.333333492, 6.666666985, 8,   8},
              2 * kFloat32);
}

TEST(KerasNumbers, Activations) {
  const Tensor x = f64({6}, {-3, -0.5, 0.1, 0.3, 0.9, 7});
  expect_near(run("gelu", {x}, {})[0],
              {-0.004049694777521031, -0.1542687708693288, 0.053982783659767365, 0.18537342606924007,
               0.7343458834992939, 6.999999999991041},
              1e-14);
  expect_near(run("gelu", {x}, {{"approximate", true}})[0],
              {-0.0036373923237909, -0.15428599020775666, 0.05398275104537388, 0.1853709235380408, 0.7342284884664743,
               6.999999999999997},
              1e-14);
  expect_near(run("elu", {x}, {{"alpha", 0.7}})[0], {-0.6651490521424952, -0.2754285382011566, 0.1, 0.3, 0.9, 7},
              1e-14);
}

TEST(KerasNumbers, TwoStepsOfAdamWAndOfNesterovSgd) {
  const Tensor rate = f64({}, {0.1});
  const Attrs adam = {{"beta_1", 0.9}, {"beta_2", 0.999}, {"epsilon", 1e-3}, {"weight_decay", 0.01}};
  const Attrs sgd = {{"momentum", 0.9}, {"nesterov", true}, {"weight_decay", 0.01}};
  Tensor w = f64({3}, {1, -2, 3}), m = f64({3}, {0, 0, 0}), v = m, u = w, momentum = m;
  for (int step = 1; step <= 2; ++step) {
    const Tensor g = f64({3}, {0.1 * step, -0.2, 5});
    const Tensor iteration = {{DType::kInt64, Shape{}}, {static_cast<double>(step)}};
    const auto a = run("adam", {w, g, m, v, rate, iteration}, adam);
    w = a[0], m = a[1], v = a[2];
    const auto s = run("sgd", {u, g, rate, momentum}, sgd);
    u = s[0], momentum = s[1];
  }
  expect_near(w, {0.8375447390564985, -1.8198005305797458, 2.7951775114199697}, 1e-14);
  expect_near(u, {0.9329200011884049, -1.9038400018999726, 0.6899530454003511}, 1e-14);
}

}  // namespace
}  // namespace plimsoll::engine::testing
