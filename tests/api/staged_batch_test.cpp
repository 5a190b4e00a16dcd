// On a device with its own memory, each input batch is staged in that memory. Every plan counts the staged batch and
// the device memory that the program held before. Host memory counts for neither.
#include "api/model_state.h"
#include "backends/cuda/cuda.h"
#include "device/process_memory.h"
#include "search/prefetch.h"
#include "tests/support/memory_data.h"
#include "tests/support/pretend_gpu.h"

namespace plimsoll::engine::testing {
namespace {

constexpr int64_t kBatch = 6;

SearchRequest request_for(const Model& model, const Backend& backend, int64_t batch, bool predict) {
  plimsoll::engine::RunOptions options;
  options.mode = predict ? Mode::kPredict : Mode::kEvaluate;
  options.batch_size = batch;
  const RunData data = require(open_run_data(options, model));
  return require(make_request(options, model, backend, data.outline, {}));
}

// Bytes of one staged batch, from the model's own shapes.
Bytes batch_bytes(const Model& model, int64_t batch, bool targets) {
  Bytes bytes = 0;
  for (const Port& port : model.inputs()) bytes += align_up(batch * port.sample.elements() * size_of(port.dtype));
  for (const Port& port : model.outputs())
    if (targets) bytes += align_up(batch * port.target.elements() * 4);
  return bytes;
}

// The pretended device computes with the CPU's kernels in float32.
class WithCpu : public ::testing::Test {
  void SetUp() override {
#ifndef PLIMSOLL_HAS_CPU
    GTEST_SKIP() << "this build has no CPU backend";
#endif
  }
};
class StagedBatch : public WithCpu {};
class ModelOnADevice : public WithCpu {};

TEST_F(StagedBatch, IsCountedForEvaluationAndPredictionOnACard) {
  const OpenModel open = require(open_model("seed-2", {}));
  const auto card = make_planned_gpu(require(cuda::card_from_profile("rtx-4090-24g")));
  for (const bool predict : {false, true}) {
    const Plan plan = require(search(request_for(open.model, *card, 64, predict))).plan;
    EXPECT_GE(plan.data_bytes, batch_bytes(open.model, 64, !predict)) << predict;
    EXPECT_LT(plan.data_bytes, batch_bytes(open.model, 64, !predict) + kKiB) << predict;
  }
}

TEST_F(StagedBatch, IsNotThereOnTheHostUnlessItIsReadAhead) {
  const OpenModel open = require(open_model("seed-2", {}));
  const auto host = open_device(fast_device());
  for (const bool predict : {false, true}) {
    const Plan plan = require(search(request_for(open.model, *host, 64, predict))).plan;
    EXPECT_EQ(plan.data_bytes, 0) << predict;
    EXPECT_EQ(plan.settings.of(kPrefetch), 0) << predict;
  }
}

// A session on a pretended GPU with exactly the plan's bytes.
TEST_F(StagedBatch, EvaluationAndPredictionHoldNoMoreThanTheirPlan) {
  for (const bool predict : {false, true}) {
    const OpenModel open = require(open_model(golden("cnn.keras"), {}));
    const auto state = std::make_shared<PretendState>();
    const PretendGpu gpu(open_device(fast_device()), state);
    SearchRequest request = request_for(open.model, gpu, kBatch, predict);
    const Plan plan = require(search(request)).plan;
    EXPECT_GE(plan.data_bytes, batch_bytes(open.model, kBatch, !predict));
    const auto session = require(Session::create(open.model, plan, gpu, request.graph));
    EXPECT_EQ(state->asked_room, plan.peak_bytes());
    EXPECT_GT(state->staged, 0);
    EXPECT_LE(state->staged, plan.data_bytes);
    require(load_weights(*session, *open.archive, false));
    MemoryData data(open.model, kBatch, 5);
    const auto fill = [&](const BatchBuffers& into) { return data.source().read(0, 0, kBatch, into); };
    require(predict ? session->predict(kBatch, fill) : session->evaluate(kBatch, fill));
    const Bytes page = sysconf(_SC_PAGESIZE);
    EXPECT_LE(gpu.peak_held_bytes(), align_up(plan.arena_bytes + Memory::kGuard, page) + plan.data_bytes);
  }
}

TEST_F(StagedBatch, APlanThatDoesNotCountItIsRefused) {
  const OpenModel open = require(open_model(golden("cnn.keras"), {}));
  const auto state = std::make_shared<PretendState>();
  const PretendGpu gpu(open_device(fast_device()), state);
  SearchRequest request = request_for(open.model, gpu, kBatch, true);
  Plan plan = require(search(request)).plan;
  plan.data_bytes = 0;
  const auto session = Session::create(open.model, plan, gpu, request.graph);
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().code, ErrorCode::kBadPlan) << to_text(session.error());
  EXPECT_EQ(state->staged, 0);
}

plimsoll::Description small_description() {
  const auto model = require(sequential({layers::Input({8, 8, 1}), layers::Conv2D(4, 3), layers::Flatten(),
                                         layers::Dense(3, {.activation = "softmax"})}));
  return require(model.compile({.optimizer = optimizers::SGD(0.1), .loss = losses::SparseCategoricalCrossentropy()}));
}

Result<std::unique_ptr<ModelState>> model_on(const std::shared_ptr<PretendState>& state,
                                             const std::string& budget = "1GiB", int64_t batch_size = kBatch) {
  return ModelState::create(
      described(small_description()), {.batch_size = batch_size, .budget = budget}, resident_bytes(),
      [&](const std::unique_ptr<Backend>&) { return std::make_unique<PretendGpu>(open_device(fast_device()), state); });
}

TEST_F(ModelOnADevice, CountsItsStagedBatchAndNotTheHostsBytes) {
  const auto state = std::make_shared<PretendState>();
  const auto model = require(model_on(state));
  const Plan& plan = model->run().session().plan();
  EXPECT_EQ(plan.data_bytes, align_up(kBatch * (64 * 4 + 4)) + 2 * kAlignment);
  EXPECT_LE(state->staged, plan.data_bytes);
  EXPECT_EQ(state->asked_room, plan.peak_bytes());
  EXPECT_EQ(model->run().session().overhead_measured_bytes(), 0);
  const auto x = plimsoll::random_uniform(Dims{kBatch, 8, 8, 1}, 1);
  const auto y = plimsoll::random_integers(3, Dims{kBatch}, 2);
  EXPECT_TRUE(model->step({.x = x, .y = y}));
  EXPECT_TRUE(model->step({.x = x.rows(0, kBatch - 2), .y = y.rows(0, kBatch - 2)}));
  EXPECT_LE(state->peak, plan.peak_bytes());
}

TEST_F(ModelOnADevice, CountsWhatTheProgramHeldThereBefore) {
  const auto plain = std::make_shared<PretendState>(), held = std::make_shared<PretendState>();
  held->before = 100 * kMiB;
  const Bytes needed = require(model_on(plain))->run().session().plan().peak_bytes();
  const auto model = require(model_on(held));
  EXPECT_EQ(model->run().session().plan().peak_bytes(), needed + held->before);
  EXPECT_EQ(held->asked_room, needed + held->before);
  EXPECT_EQ(model->run().session().overhead_measured_bytes(), 0);
  const std::string text = model->plan().text;
  const size_t line = text.find("held by the program before");
  ASSERT_NE(line, std::string::npos) << text;
  EXPECT_NE(text.substr(line, text.find('\n', line) - line).find("104,857,600"), std::string::npos) << text;
}

// Returns the bytes of the smallest plan from an error of a plan that does not fit: "... needs 32.1 MiB (33608960
// bytes), ...".
Bytes least_of(const Result<std::unique_ptr<ModelState>>& refused) {
  if (refused) throw std::runtime_error("it fits");
  const std::string fact = refused.error().facts.at(0);
  return std::stoll(fact.substr(fact.find('(') + 1));
}

TEST_F(ModelOnADevice, WhatTheProgramHeldThereIsNoLongerFree) {
  const auto plain = std::make_shared<PretendState>(), held = std::make_shared<PretendState>();
  held->before = 100 * kMiB;
  const Bytes least = least_of(model_on(plain, "1MiB"));
  EXPECT_EQ(least_of(model_on(held, "1MiB")), least + held->before);
  EXPECT_TRUE(model_on(held, std::to_string(least + held->before)));
  EXPECT_FALSE(model_on(held, std::to_string(least + held->before - 1)));
}

// A batch of another size needs its own kernels, and these count against the budget. New sizes run until the budget has
// no more room. Sizes that ran before still run after that.
TEST_F(ModelOnADevice, BatchesOfManySizesStayInsideTheBudget) {
  constexpr int64_t kMost = 128;
  const auto state = std::make_shared<PretendState>();
  const Bytes whole = require(model_on(state, "1GiB", kMost))->run().session().plan().peak_bytes();
  const auto model = require(model_on(state, std::to_string(whole + 2 * kMiB), kMost));
  const auto x = plimsoll::random_uniform(Dims{kMost, 8, 8, 1}, 1);
  const auto y = plimsoll::random_integers(3, Dims{kMost}, 2);
  Result<Logs> result = Logs();
  for (int64_t count = 1; count <= kMost && result; ++count)
    result = model->step({.x = x.rows(0, count), .y = y.rows(0, count)});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kDoesNotFit);
  EXPECT_NE(result.error().what.find("a new size"), std::string::npos) << result.error().what;
  EXPECT_TRUE(model->step({.x = x.rows(0, 1), .y = y.rows(0, 1)}));
  EXPECT_TRUE(model->step({.x = x, .y = y}));
}

}  // namespace
}  // namespace plimsoll::engine::testing
