// --memory-growth on a GPU: the memory that the driver counts follows the phases, training does not change, and all
// memory is released at the end.
#ifdef PLIMSOLL_HAS_CUDA
#include "execute/probe.h"
#include "tests/support/gpu.h"
#include "tests/support/memory_data.h"

namespace plimsoll::engine::testing {
namespace {

constexpr int64_t kBatch = 64, kEvaluate = 8;
constexpr Bytes kGranularity = 2 * kMiB;  // of the driver's allocations, on every card so far

RunOptions large(bool growth) {
  RunOptions options;
  options.device = "gpu";
  options.batch_size = kBatch;
  options.validates(kEvaluate, kEvaluate);
  options.memory_growth = growth;
  // Not Adam: it divides by a gradient's size, so for tiny gradients the order of additions would determine the step.
  options.overrides.optimizer = "sgd";
  options.overrides.learning_rate = 1e-3;
  return options;
}

class GpuGrowth : public OnGpu {
 protected:
  static void expect_held(const ModelRun& run, Bytes end) {
    EXPECT_GE(run.session->arena_held_bytes(), end);
    EXPECT_LT(run.session->arena_held_bytes(), end + Memory::kGuard + kGranularity);
  }
  static void evaluate(ModelRun& run, MemoryData& data) {
    require(run.session->evaluate(kEvaluate,
                                  [&](const BatchBuffers& into) { return data.source().read(0, 0, kEvaluate, into); }));
    require(run.session->collect());
  }
};

TEST_F(GpuGrowth, MemoryIsMappedAsPhasesComeAndTheDriverCountsIt) {
  const auto run = run_of("seed-2", large(true));
  const Plan& plan = run->plan();
  const Bytes small = plan.phase(PhaseKind::kEvaluate)->arena_bytes;
  ASSERT_LT(plan.persistent_bytes + 4 * kGranularity, small);
  ASSERT_LT(small + 4 * kGranularity, plan.arena_bytes);
  EXPECT_TRUE(run->backend->device().info().memory_growth);
  expect_held(*run, plan.persistent_bytes);
  const Bytes held = run->session->arena_held_bytes(), counted = run->backend->held_bytes();

  MemoryData data(run->open.model, kBatch, 5);
  evaluate(*run, data);
  expect_held(*run, small);
  run->step(data.source(), 0, kBatch);
  expect_held(*run, plan.arena_bytes);
  const Bytes grown = run->session->arena_held_bytes() - held;
  EXPECT_NEAR(static_cast<double>(run->backend->held_bytes() - counted), static_cast<double>(grown), 4 * kMiB);
  EXPECT_EQ(run->session->arena_peak_bytes(), plan.arena_bytes);

  const Bytes before_closing = run->backend->held_bytes(), arena = run->session->arena_held_bytes();
  run->end_session();
  EXPECT_LE(run->backend->held_bytes(), before_closing - arena);
}

// Captured phases keep their addresses while the memory mapped there is released and taken again.
TEST_F(GpuGrowth, TrainingIsTheSame) {
  const auto losses = [](bool growth) {
    const auto run = run_of("seed-2", large(growth));
    MemoryData data(run->open.model, 4 * kBatch, 5);
    std::vector<double> list;
    for (int64_t i = 0; i < 4; ++i) {
      list.push_back(run->step(data.source(), i * kBatch, kBatch));
      evaluate(*run, data);
      list.push_back(run->session->tally("loss"));
    }
    return list;
  };
  const std::vector<double> want = losses(false), got = losses(true);
  EXPECT_NE(want.front(), want.back());
  EXPECT_LE(relative_difference(got, want), 1e-5);
}

TEST_F(GpuGrowth, ModelsInTurnLeaveNothingBehind) {
  std::vector<Bytes> left;  // free bytes on the card after each run
  for (int i = 0; i < 4; ++i) {
    {
      const auto run = run_of("seed-2", large(true));
      MemoryData data(run->open.model, kBatch, 5);
      run->step(data.source(), 0, kBatch);
      EXPECT_GT(run->session->arena_held_bytes(), 64 * kMiB);
    }
    size_t free = 0, total = 0;
    ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
    left.push_back(static_cast<Bytes>(free));
  }
  EXPECT_GE(left[3] + 2 * kMiB, left[1]);  // the first run also loads code, which stays
}

TEST_F(GpuGrowth, ThePatternBehindTheArenaStays) {
  const auto run = run_of("seed-2", large(true));
  MemoryData data(run->open.model, kBatch, 5);
  Probe(*run->session).fill_pattern();
  run->step(data.source(), 0, kBatch);
  EXPECT_EQ(Probe(*run->session).first_changed_byte(run->plan().arena_bytes), -1);
}

}  // namespace
}  // namespace plimsoll::engine::testing
#endif
