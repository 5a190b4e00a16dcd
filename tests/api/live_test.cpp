// Tests what a program needs that trains with a loop of its own and keeps its own copy of the weights.
#include <limits>

#include "tests/api/support.h"

namespace plimsoll::engine::testing {
namespace {

plimsoll::Description adam_model() {
  return require(small_model().compile({.optimizer = optimizers::Adam({.learning_rate = 0.01}),
                                        .loss = losses::SparseCategoricalCrossentropy(),
                                        .metrics = {"accuracy"}}));
}

plimsoll::Model trained_with_adam() {
  return require(plimsoll::Model::create(adam_model(), small_options()));
}

TEST(ModelMetrics, AreMeansOverAllSamplesSinceTheReset) {
  plimsoll::Model model = small_trained();
  const Samples four, two(2);
  const double first = require(model.step(four.batch())).loss(), second = require(model.step(two.batch())).loss();
  EXPECT_NEAR(require(model.metrics()).loss(), (4 * first + 2 * second) / 6, 1e-6);
  require(model.reset_metrics());
  const double third = require(model.step(four.batch())).loss();
  EXPECT_NEAR(require(model.metrics()).loss(), third, 1e-6);
}

TEST(ModelTest, OneBatchGivesWhatEvaluateGives) {
  plimsoll::Model model = small_trained();
  const Samples many(3 * kSmallBatch + 1);
  const Logs whole = require(model.evaluate(many.data())), batch = require(model.test(many.batch()));
  EXPECT_DOUBLE_EQ(batch.loss(), whole.loss());
  EXPECT_DOUBLE_EQ(*require(model.metrics()).find("accuracy"), *whole.find("accuracy"));
  expect_error(model.test(Batch{.x = many.x}), ErrorCode::kDataShape, {"Batch::y is not given"});
  expect_untouched(model);
}

TEST(ModelTest, AModelThatDoesNotTrainEvaluatesIfItIsCompiled) {
  plimsoll::Model trains = small_trained();
  plimsoll::Model looks =
      require(plimsoll::Model::create(small_model(), {.batch_size = kSmallBatch, .trains = false, .threads = 1}));
  for (const WeightInfo& weight : trains.weights()) {
    const Array value = require(trains.weight(weight.name));
    require(looks.set_weight(weight.name, value));
  }
  const Samples samples;
  expect_same_loss(require(looks.test(samples.batch())).loss(), require(trains.test(samples.batch())).loss());
  EXPECT_TRUE(looks.optimizer_variables().empty());
  expect_error(looks.optimizer_variable("dense/kernel/m"), ErrorCode::kUsage, {"options.trains = true"});
  expect_error(looks.set_iterations(1), ErrorCode::kUsage, {"options.trains = true"});
}

// Copies everything that training depends on.
void copy_state(plimsoll::Model& from, plimsoll::Model& to) {
  for (const WeightInfo& weight : from.weights()) {
    const Array value = require(from.weight(weight.name));
    require(to.set_weight(weight.name, value));
  }
  for (const WeightInfo& variable : from.optimizer_variables()) {
    const Array value = require(from.optimizer_variable(variable.name));
    require(to.set_optimizer_variable(variable.name, value));
  }
  require(to.set_iterations(from.iterations()));
}

TEST(ModelState, TrainingContinuesInAnotherModelToTheBit) {
  plimsoll::Model model = trained_with_adam(), other = trained_with_adam();
  const Samples samples;
  for (int i = 0; i < 3; ++i) require(model.step(samples.batch()));
  ASSERT_EQ(model.optimizer_variables().size(), 4u);  // two moments of a kernel and a bias
  copy_state(model, other);
  EXPECT_EQ(other.iterations(), 3);
  for (int i = 0; i < 2; ++i)
    expect_same_loss(require(other.step(samples.batch())).loss(), require(model.step(samples.batch())).loss());
}

TEST(ModelState, WrongStateIsRefused) {
  plimsoll::Model model = trained_with_adam();
  const std::string name = model.optimizer_variables().at(0).name;
  expect_error(model.optimizer_variable("nosuch"), ErrorCode::kUsage, {"'nosuch'", "optimizer_variables()"});
  expect_error(model.optimizer_variable(""), ErrorCode::kUsage, {});
  expect_error(model.optimizer_variable("dense/kernel"), ErrorCode::kUsage, {"dense/kernel"});  // a weight
  const std::vector<float> three = {1, 2, 3};
  expect_error(model.set_optimizer_variable(name, three), ErrorCode::kDataShape, {"(3,)"});
  expect_error(model.set_optimizer_variable(name, ArrayView()), ErrorCode::kDataShape, {"no array"});
  expect_error(model.set_iterations(-1), ErrorCode::kUsage, {"-1"});
}

TEST(ModelOptions, ReservedBytesAndSamplesAreCounted) {
  const auto planned = [](const plimsoll::Options& options) { return require(plan(small_model(), options)); };
  plimsoll::Options options = small_options();
  options.device = "cpu";  // reserved bytes are of the host's memory
  const int64_t before = planned(options).data_bytes;
  options.reserved_bytes = int64_t{64} << 20;
  EXPECT_GE(planned(options).data_bytes, before + (int64_t{60} << 20));
  options.samples = 4 * kSmallBatch + 1;
  const plimsoll::Plan with_tail = planned(options);
  EXPECT_TRUE(std::any_of(with_tail.phases.begin(), with_tail.phases.end(),
                          [](const PlanPhase& phase) { return phase.name == "train_tail"; }));
  for (auto member :
       {&plimsoll::Options::reserved_bytes, &plimsoll::Options::samples, &plimsoll::Options::validation_samples}) {
    plimsoll::Options wrong = small_options();
    wrong.*member = -1;
    expect_error(plan(small_model(), wrong), ErrorCode::kUsage, {"-1"});
  }
  options.reserved_bytes = std::numeric_limits<int64_t>::max();
  expect_error(plan(small_model(), options), ErrorCode::kUsage, {"too large"});
}

TEST(ModelOptions, ALossThatIsNotFiniteIsReportedIfTheCallerWants) {
  const std::vector<float> x(2 * kSmallBatch, 1e30f), y(kSmallBatch, 0);
  const Batch batch{.x = ArrayView(x, {kSmallBatch, 2}), .y = ArrayView(y, {kSmallBatch, 1})};
  plimsoll::Options options = small_options();
  plimsoll::Model refuses = require(plimsoll::Model::create(regression_model(), options));
  expect_error(refuses.step(batch), ErrorCode::kDataNotFinite, {"diverged"});
  options.refuse_divergence = false;
  plimsoll::Model reports = require(plimsoll::Model::create(regression_model(), options));
  EXPECT_FALSE(std::isfinite(require(reports.step(batch)).loss()));
}

}  // namespace
}  // namespace plimsoll::engine::testing
