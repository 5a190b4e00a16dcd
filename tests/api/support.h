// Small models and batches for the tests of the C++ interface.
#pragma once

#include <plimsoll/plimsoll.h>

#include <cmath>

#include "tests/support/run.h"

namespace plimsoll::engine::testing {

inline constexpr int64_t kSmallBatch = 4;
inline constexpr int32_t kClasses = 3;

inline plimsoll::Description small_model(const std::string& dtype = "float32") {
  const auto model = require(sequential({layers::Input({2, 2, 1}, {.dtype = dtype}), layers::Flatten(),
                                         layers::Dense(kClasses, {.activation = "softmax"})}));
  return require(model.compile({.optimizer = optimizers::SGD({.learning_rate = 0.1}),
                                .loss = losses::SparseCategoricalCrossentropy(),
                                .metrics = {"accuracy"}}));
}

inline plimsoll::Description regression_model(double rate = 0.01) {
  const auto model = require(sequential({layers::Input({2}), layers::Dense(1)}));
  return require(
      model.compile({.optimizer = optimizers::SGD({.learning_rate = rate}), .loss = losses::MeanSquaredError()}));
}

// A model uses the GPU if there is one. On a GPU, two equal runs differ by rounding.
inline bool on_gpu() {
  return devices().back() == "gpu";
}
inline void expect_same_loss(double got, double want, const std::string& what = "") {
  EXPECT_NEAR(got, want, on_gpu() ? 1e-5 * std::abs(want) : 0) << what;
}

inline plimsoll::Options small_options() {
  return {.batch_size = kSmallBatch, .threads = 1};
}
inline plimsoll::Model small_trained(const plimsoll::Options& options = small_options()) {
  return require(plimsoll::Model::create(small_model(), options));
}

struct Samples {
  Array x, labels;

  explicit Samples(int64_t count = kSmallBatch)
      : x(plimsoll::random_uniform(Dims{count, 2, 2, 1}, 5)),
        labels(plimsoll::random_integers(kClasses, Dims{count}, 6)) {}
  Batch batch() const { return {.x = x, .y = labels}; }
  Data data() const { return Data::arrays(x, labels); }
  int32_t& label(size_t i) { return require(labels.values<int32_t>())[i]; }
  float& pixel(size_t i) { return require(x.values<float>())[i]; }
};

// Expects an error with this code whose text contains all these words and no flag.
template <typename T>
void expect_error(const Result<T>& result, ErrorCode code, const std::vector<std::string>& words) {
  ASSERT_FALSE(result.has_value());
  const std::string text = to_text(result.error());
  EXPECT_EQ(code_name(result.error().code), code_name(code)) << text;
  for (const std::string& word : words) EXPECT_NE(text.find(word), std::string::npos) << word << " in:\n" << text;
  EXPECT_EQ(text.find("--"), std::string::npos) << text;
}

// Expects that the next step gives the same result as without the refused calls before it.
inline void expect_untouched(plimsoll::Model& model) {
  plimsoll::Model other = small_trained();
  const Samples samples;
  expect_same_loss(require(model.step(samples.batch())).loss(), require(other.step(samples.batch())).loss());
}

inline std::vector<float> floats_of(const Array& array) {
  const auto values = require(array.values<float>());
  return {values.begin(), values.end()};
}

}  // namespace plimsoll::engine::testing
