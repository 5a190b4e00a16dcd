// Timing the kernels of a plan for a calibration, with a clock that the test sets.
#include "execute/kernel_times.h"

#include <cmath>

#include "device/calibrated_device.h"
#include "device/kernel_key.h"
#include "execute/random_batch.h"
#include "tests/support/memory_data.h"

namespace plimsoll::engine::testing {
namespace {

constexpr int64_t kBatch = 16;

struct Timing {
  std::unique_ptr<ModelRun> run;
  double time = 0;
  int steps = 0;

  explicit Timing(int64_t micro) {
    RunOptions options;
    options.batch_size = kBatch;
    options.forced->micro = micro;
    run = run_of(small_cnn(), optimizers::SGD(0.01), losses::SparseCategoricalCrossentropy(), options);
  }

  TimedStep time_them(const TimingOptions& options) {
    const Plan& plan = run->plan();
    const RandomBatch batch(run->open.model, run->request.graph.data, *plan.phase(plan.gradient_phase()),
                            plan.batch.micro);
    const auto step = [&]() -> Status {
      ++steps;
      time += 0.125;
      return run->whole->step(kBatch, [&](const BatchRequest& piece, const BatchBuffers& into) -> Status {
        batch.read(piece.count, into);
        return {};
      });
    };
    return require(time_kernels(*run->session, step, options));
  }

  // The seconds that the plan has with this calibration, per run of each of its phases.
  double predicted(const std::vector<KernelTime>& times, int* nodes) const {
    const Device& device = run->backend->device();
    auto calibration = std::make_shared<Calibration>(device.info(), "1");
    EXPECT_EQ(calibration->add(times), times.size());
    const CalibratedDevice calibrated(device, calibration);
    double sum = 0;
    for (const PhasePlan& phase : run->plan().phases)
      for (const Node& node : phase.graph.nodes) {
        const double seconds = require(calibrated.offer(phase.graph, node)).seconds;
        sum += seconds;
        *nodes += seconds > 0 ? 1 : 0;
      }
    return sum;
  }
};

// Each call of the clock takes a microsecond, so each node does. A host device is timed node by node.
TEST(KernelTimes, OfEveryNodeOfAStepAreMeasured) {
  for (const int64_t micro : {kBatch, kBatch / 4}) {
    Timing timing(micro);
    if (timing.run->backend->device().info().own_memory) GTEST_SKIP() << "this device is timed in rows";
    TimingOptions options;
    options.least_steps = options.most_steps = 3;
    options.now = [&] { return timing.time += 1e-6; };
    const TimedStep timed = timing.time_them(options);
    ASSERT_FALSE(timed.kernels.empty());
    for (const KernelTime& kernel : timed.kernels) EXPECT_NEAR(kernel.seconds, 1e-6, 1e-9) << kernel.key;
    EXPECT_NEAR(timed.seconds, 0.125, 1e-5) << "a step without timing of its kernels";
    EXPECT_EQ(timing.steps, 2 + 2 * 3);
    int nodes = 0;
    const double predicted = timing.predicted(timed.kernels, &nodes);
    EXPECT_GT(nodes, 10);
    EXPECT_NEAR(predicted, nodes * 1e-6, nodes * 1e-9) << "a calibrated plan predicts what was measured";
  }
}

// A slow step changes nothing: another program may have run.
TEST(KernelTimes, IgnoreSlowSteps) {
  Timing timing(kBatch);
  if (timing.run->backend->device().info().own_memory) GTEST_SKIP() << "this device is timed in rows";
  TimingOptions options;
  options.least_steps = options.most_steps = 5;
  options.now = [&] { return timing.time += timing.steps == 4 || timing.steps == 5 ? 1.0 : 1e-6; };
  for (const KernelTime& kernel : timing.time_them(options).kernels)
    EXPECT_NEAR(kernel.seconds, 1e-6, 1e-9) << kernel.key;
}

TEST(KernelTimes, EndWithTheirTime) {
  Timing timing(kBatch);
  TimingOptions options;
  options.seconds = 0.5;
  options.least_steps = 1;
  options.now = [&] { return timing.time; };
  timing.time_them(options);
  EXPECT_LE(timing.steps, 2 + 2 * 3);
}

TEST(RandomBatch, IsValidAndNotZero) {
  Timing timing(kBatch);
  const Plan& plan = timing.run->plan();
  const Model& model = timing.run->open.model;
  const RandomBatch batch(model, timing.run->request.graph.data, *plan.phase(plan.gradient_phase()), kBatch);
  std::vector<float> x(static_cast<size_t>(kBatch * model.inputs()[0].sample.elements()));
  std::vector<int32_t> y(static_cast<size_t>(kBatch));
  batch.read(kBatch, {{x.data()}, {y.data()}, {}});
  EXPECT_GT(*std::max_element(x.begin(), x.end()), 0.9F);
  EXPECT_LT(*std::max_element(x.begin(), x.end()), 1.0F);
  EXPECT_GE(*std::min_element(y.begin(), y.end()), 0);
  EXPECT_LT(*std::max_element(y.begin(), y.end()), model.outputs()[0].classes);
  EXPECT_NE(*std::min_element(y.begin(), y.end()), *std::max_element(y.begin(), y.end()));
}

}  // namespace
}  // namespace plimsoll::engine::testing
