// On a GPU: evaluation, prediction and the C++ Model inside a budget of exactly their plan.
#ifdef PLIMSOLL_HAS_CUDA
#include "api/model_state.h"
#include "device/process_memory.h"
#include "tests/support/gpu.h"
#include "tests/support/memory_data.h"

namespace plimsoll::engine::testing {
namespace {

constexpr int64_t kBatch = 64;  // of seed-2's images: 12 MiB

class GpuStaged : public OnGpu {};

TEST_F(GpuStaged, EvaluationAndPredictionHoldNoMoreThanABudgetOfTheirPlan) {
  for (const bool predict : {false, true}) {
    const OpenModel open = require(open_model("seed-2", {}));
    const auto backend = open_device("gpu");
    plimsoll::engine::RunOptions options;
    options.mode = predict ? Mode::kPredict : Mode::kEvaluate;
    options.batch_size = kBatch;
    const RunData none = require(open_run_data(options, open.model));
    SearchRequest request = require(make_request(options, open.model, *backend, none.outline, {}));
    request.budget = require(search(request)).plan.peak_bytes();
    const SearchResult found = require(search(request));
    ASSERT_TRUE(found.fits);
    const Plan& plan = found.plan;
    EXPECT_GE(plan.data_bytes, kBatch * open.model.inputs()[0].sample.elements() * 4);
    const auto session = require(Session::create(open.model, plan, *backend, request.graph));
    require(initialize_weights(*session, 7));
    const Bytes staged = backend->held_bytes() - session->arena_held_bytes() - session->overhead_now();
    EXPECT_GT(staged, 0);
    MemoryData data(open.model, kBatch, 5);
    const auto fill = [&](const BatchBuffers& into) { return data.source().read(0, 0, kBatch, into); };
    for (int i = 0; i < 3; ++i) {
      require(predict ? session->predict(kBatch, fill) : session->evaluate(kBatch, fill));
      if (!predict) require(session->collect());
    }
    require(backend->finish());
    EXPECT_LE(backend->peak_held_bytes() - backend->held_before_bytes(), plan.peak_bytes()) << predict;
  }
}

Result<std::unique_ptr<ModelState>> model_in(const std::string& budget) {
  const auto model = require(sequential({layers::Input({64, 64, 3}), layers::Conv2D(8, 3), layers::Flatten(),
                                         layers::Dense(10, {.activation = "softmax"})}));
  const auto compiled =
      require(model.compile({.optimizer = optimizers::SGD(0.01), .loss = losses::SparseCategoricalCrossentropy()}));
  return ModelState::create(described(compiled), {.batch_size = kBatch, .budget = budget}, resident_bytes());
}

TEST_F(GpuStaged, AModelCountsItsStagedBatchAndNotTheHostsBytes) {
  const std::vector<char> ballast(1 << 28, 1);
  const Bytes free = open_device("gpu")->device().info().free_bytes;
  const auto model = require(model_in(std::to_string(free / 2)));
  const Session& session = model->run().session();
  const Plan& plan = session.plan();
  EXPECT_GE(plan.data_bytes, kBatch * 64 * 64 * 3 * 4);
  // The bound was checked against the GPU memory in use. The first context of a process alone takes tens of MiB.
  EXPECT_LE(session.overhead_measured_bytes(), plan.overhead_bytes);
  const auto x = plimsoll::random_uniform(Dims{kBatch, 64, 64, 3}, 1);
  const auto y = plimsoll::random_integers(10, Dims{kBatch}, 2);
  for (int i = 0; i < 3; ++i) require(model->step({.x = x, .y = y}));
  EXPECT_LE(session.peak_held_bytes(), plan.peak_bytes());
  EXPECT_EQ(ballast.back(), 1);
}

TEST_F(GpuStaged, ASecondModelCountsTheFirst) {
  const auto first = require(model_in("8GiB"));
  const auto second = require(model_in("8GiB"));
  EXPECT_GE(second->run().session().plan().peak_bytes(), first->run().session().plan().peak_bytes());
  const auto x = plimsoll::random_uniform(Dims{kBatch, 64, 64, 3}, 1);
  const auto y = plimsoll::random_integers(10, Dims{kBatch}, 2);
  for (int i = 0; i < 2; ++i)
    EXPECT_NEAR(require(first->step({.x = x, .y = y})).loss(), require(second->step({.x = x, .y = y})).loss(), 1e-3);
}

}  // namespace
}  // namespace plimsoll::engine::testing
#endif
