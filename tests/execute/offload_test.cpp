// Offload to host memory: the same training with less device memory.
#ifdef PLIMSOLL_HAS_CUDA
#include "backends/cuda/cuda.h"
#endif
#include "execute/probe.h"
#include "tests/support/memory_data.h"

namespace plimsoll::engine::testing {
namespace {

constexpr int64_t kBatch = 8, kSteps = 5;

// Deep enough that many live values are not read for a while.
plimsoll::Description deep_cnn() {
  std::vector<SequentialItem> list = {layers::Input({24, 24, 3})};
  for (int i = 0; i < 8; ++i) list.push_back(layers::Conv2D(16, {3, 3}, {.padding = "same", .activation = "tanh"}));
  list.push_back(layers::GlobalAveragePooling2D());
  list.push_back(layers::Dense(10, {.activation = "softmax"}));
  return require(sequential(list, "deep"));
}

class Offload : public ::testing::TestWithParam<std::string> {
 protected:
  std::string device() const { return GetParam(); }
  std::unique_ptr<ModelRun> run(double kept, int recompute = 0) const {
    RunOptions options;
    options.device = device();
    options.batch_size = kBatch;
    options.forced->kept = kept;
    options.forced->recompute = recompute;
    options.alone = false;
    return run_of(deep_cnn(), optimizers::Adam(1e-3), losses::SparseCategoricalCrossentropy(), options);
  }
};

TEST_P(Offload, TrainsToTheSameWeightsInLess) {
  const auto plain = run(1);
  MemoryData data(plain->open.model, kBatch, 11);
  std::vector<double> losses;
  for (int64_t i = 0; i < kSteps; ++i) losses.push_back(plain->step(data.source(), 0, kBatch));
  for (const double kept : {0.8, 0.65}) {
    const auto away = run(kept);
    const PhasePlan &before = plain->plan().phases[0], &after = away->plan().phases[0];
    EXPECT_LT(after.live_set_bytes, before.live_set_bytes);
    EXPECT_LT(after.arena_bytes, before.arena_bytes);
    EXPECT_GT(away->plan().bytes_in(Space::kHost), 0);
    Probe(*away->session).fill_pattern();
    for (int64_t i = 0; i < kSteps; ++i) {
      const double loss = away->step(data.source(), 0, kBatch), want = losses[static_cast<size_t>(i)];
      // A GPU may add gradients in any order.
      EXPECT_NEAR(loss, want, device() == "gpu" ? 1e-5 * std::abs(want) : 0) << kept << ", step " << i;
    }
    for (const Weight& weight : plain->open.model.weights())
      EXPECT_LE(relative_difference(away->values(weight.name), plain->values(weight.name)),
                device() == "gpu" ? 3e-5 : 0)
          << kept << ", " << weight.name;
    EXPECT_EQ(away->session->arena_peak_bytes(), away->plan().arena_bytes);
    EXPECT_EQ(Probe(*away->session).first_changed_byte(away->plan().arena_bytes), -1);
  }
}

TEST_P(Offload, APlanWithItReadsBackAsItWas) {
  const auto away = run(0.8);
  const nlohmann::json json = to_json(away->plan());
  const Plan read = require(plan_from_json(json));
  EXPECT_EQ(to_json(read), json);
  EXPECT_EQ(read.beside, away->plan().beside);
  EXPECT_TRUE(validate(read));
}

// With both levers, clones read values that were copied back.
TEST_P(Offload, GoesTogetherWithRecompute) {
  const auto plain = run(1), away = run(0.85, 10);
  MemoryData data(plain->open.model, kBatch, 12);
  for (int64_t i = 0; i < kSteps; ++i) {
    const double want = plain->step(data.source(), 0, kBatch);
    EXPECT_NEAR(away->step(data.source(), 0, kBatch), want, device() == "gpu" ? 1e-5 * want : 0) << i;
  }
}

#ifdef PLIMSOLL_HAS_CUDA
// Plans use the bandwidth in the profile.
TEST(GpuLink, IsAboutAsFastAsTheProfileSays_gpu) {
  const auto cards = visible_cards();
  if (!cards || cards->front().profile.empty()) GTEST_SKIP() << "no GPU with a profile here";
  const double measured = require(measure_gpu_link(0)), said = cards->front().host_bytes_per_second;
  EXPECT_GT(measured, 0.7 * said);
  EXPECT_LT(measured, 1.4 * said);
}
#endif

INSTANTIATE_TEST_SUITE_P(Devices, Offload, ::testing::ValuesIn(devices()),
                         [](const auto& which) { return which.param; });

}  // namespace
}  // namespace plimsoll::engine::testing
