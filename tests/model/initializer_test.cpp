#include "model/initializer.h"

#include <algorithm>
#include <cmath>

#include "tests/model/support.h"

namespace plimsoll::engine {
namespace {

using nlohmann::json;

std::vector<double> drawn(const json& initializer, Shape shape, uint64_t seed = 7, const std::string& name = "w") {
  Weight weight;
  weight.name = name;
  weight.shape = std::move(shape);
  weight.initializer = initializer;
  std::vector<double> values(static_cast<size_t>(weight.shape.elements()));
  const Status done = initialize(weight, seed, std::span<double>(values));
  EXPECT_TRUE(done) << text_of(done.error());
  return values;
}

struct Moments {
  double mean = 0, deviation = 0, largest = 0;
};
Moments moments(const std::vector<double>& values) {
  Moments m;
  for (double v : values) {
    m.mean += v / static_cast<double>(values.size());
    m.largest = std::max(m.largest, std::abs(v));
  }
  for (double v : values) m.deviation += (v - m.mean) * (v - m.mean) / static_cast<double>(values.size());
  m.deviation = std::sqrt(m.deviation);
  return m;
}

TEST(Initializer, HasTheDeviationKerasGivesIt) {
  const Shape kernel{3, 3, 100, 200};  // fans 900 and 1800
  struct Case {
    const char* name;
    double deviation, limit;  // limit of the distribution's support; 0: none
  };
  const double u = std::sqrt(3.0), t = 2 / 0.87962566103423978;
  for (const Case& c : {Case{"glorot_uniform", std::sqrt(1 / 1350.0), u},
                        {"glorot_normal", std::sqrt(1 / 1350.0), t},
                        {"he_uniform", std::sqrt(2 / 900.0), u},
                        {"he_normal", std::sqrt(2 / 900.0), t},
                        {"lecun_uniform", std::sqrt(1 / 900.0), u},
                        {"lecun_normal", std::sqrt(1 / 900.0), t},
                        {"random_normal", 0.05, 0}}) {
    const Moments m = moments(drawn(c.name, kernel));
    // Four standard errors for 180,000 draws.
    EXPECT_NEAR(m.mean, 0, 4 * c.deviation / std::sqrt(180000.0)) << c.name;
    EXPECT_NEAR(m.deviation / c.deviation, 1, 4 / std::sqrt(2 * 180000.0)) << c.name;
    if (c.limit > 0) {
      EXPECT_LE(m.largest, c.limit * c.deviation * (1 + 1e-12)) << c.name;
    }
  }
}

TEST(Initializer, ConstantsAndArguments) {
  EXPECT_EQ(drawn("zeros", {3}), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(drawn("ones", {2}), (std::vector<double>{1, 1}));
  EXPECT_EQ(drawn({{"class_name", "Constant"}, {"config", {{"value", 0.25}}}}, {2}), (std::vector<double>{0.25, 0.25}));
  const auto uniform =
      drawn({{"class_name", "RandomUniform"}, {"config", {{"minval", 2}, {"maxval", 3}, {"seed", 1}}}}, {1000});
  EXPECT_GE(*std::min_element(uniform.begin(), uniform.end()), 2);
  EXPECT_LT(*std::max_element(uniform.begin(), uniform.end()), 3);
  const Moments fan_out =
      moments(drawn({{"class_name", "VarianceScaling"},
                     {"config", {{"scale", 3.0}, {"mode", "fan_out"}, {"distribution", "uniform"}}}},
                    {300, 300}));
  EXPECT_NEAR(fan_out.deviation, 0.1, 0.1 * 4 / std::sqrt(2 * 90000.0));
}

// The kernel of an EinsumDense: its initializer names the axes of the inputs and of the outputs.
TEST(Initializer, CountsFansByTheAxesItIsGiven) {
  const Moments fan_in = moments(drawn(
      {{"class_name", "LecunUniform"}, {"config", {{"input_axes", {0, 2}}, {"output_axes", {1}}}}}, {100, 9, 100}));
  EXPECT_NEAR(fan_in.deviation, 0.01, 0.01 * 4 / std::sqrt(2 * 90000.0));
}

TEST(Initializer, DependsOnSeedAndNameAlone) {
  EXPECT_EQ(drawn("glorot_uniform", {5, 5}), drawn("glorot_uniform", {5, 5}));
  EXPECT_NE(drawn("glorot_uniform", {5, 5}), drawn("glorot_uniform", {5, 5}, 8));
  EXPECT_NE(drawn("glorot_uniform", {5, 5}), drawn("glorot_uniform", {5, 5}, 7, "v"));
}

TEST(Initializer, Float32IsTheRoundedFloat64) {
  Weight weight;
  weight.name = "w";
  weight.shape = {64};
  weight.initializer = "he_normal";
  std::vector<float> values(64);
  ASSERT_TRUE(initialize(weight, 7, std::span<float>(values)));
  const auto wide = drawn("he_normal", {64});
  for (size_t i = 0; i < 64; ++i) EXPECT_EQ(values[i], static_cast<float>(wide[i]));
}

TEST(Initializer, OrthogonalColumnsOrRows) {
  for (const Shape& shape : {Shape{3, 2, 4}, Shape{4, 9}, Shape{70, 70}, Shape{150, 61}, Shape{40, 700}}) {
    const auto m = drawn({{"class_name", "Orthogonal"}, {"config", {{"gain", 2.0}}}}, shape);
    const auto columns = static_cast<size_t>(shape.back()), rows = m.size() / columns;
    const bool tall = rows >= columns;
    const size_t n = std::min(rows, columns), length = std::max(rows, columns);
    for (size_t a = 0; a < n; ++a)
      for (size_t b = 0; b < n; ++b) {
        double dot = 0;
        for (size_t i = 0; i < length; ++i)
          dot += (tall ? m[i * columns + a] * m[i * columns + b] : m[a * columns + i] * m[b * columns + i]);
        EXPECT_NEAR(dot, a == b ? 4 : 0, 1e-13);
      }
  }
}

TEST(Initializer, UnknownOnesAreListedTogether) {
  const json mine = {
      {"module", "my"}, {"class_name", "Mine"}, {"config", json::object()}, {"registered_name", "my>Mine"}};
  const Model model = *Model::create(
      describe(sequential_json(
          {nullptr, 4},
          {layer_json("Dense", "d",
                      {{"units", 3}, {"kernel_initializer", mine}, {"bias_initializer", "orthogonal"}})})),
      untrained());
  const Status status = check_initializers(model);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(status.error().facts.size(), 2u);
}

// The numbers are those of keras.initializers.STFT("real", "hann", "density")((5, 1, 3)).
TEST(Initializer, FourierKernelHasKerasNumbers) {
  const std::vector<double> hann =
      drawn({{"class_name", "STFT"}, {"config", {{"side", "real"}, {"window", "hann"}, {"scaling", "density"}}}},
            Shape{5, 1, 3});
  const std::vector<double> keras = {0,        0,        0, 0.408248,  0, -0.408248, 0.816497, -0.816497,
                                     0.816497, 0.408248, 0, -0.408248, 0, 0,         0};
  for (size_t i = 0; i < keras.size(); ++i) EXPECT_NEAR(hann[i], keras[i], 1e-6) << i;
  const std::vector<double> list = drawn({{"class_name", "Constant"}, {"config", {{"value", {1, 2, 3}}}}}, Shape{2, 3});
  EXPECT_EQ(list, (std::vector<double>{1, 2, 3, 1, 2, 3}));
}

}  // namespace
}  // namespace plimsoll::engine
