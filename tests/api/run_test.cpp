// Tests Run: the plan that it makes from options, and how it switches to another plan.
#include "plan/recompute.h"
#include "search/prefetch.h"
#include "tests/support/memory_data.h"

namespace plimsoll::engine::testing {
namespace {

constexpr int64_t kBatch = 12;

std::unique_ptr<Run> start(const RunOptions& options, const std::string& model = golden("cnn.keras")) {
  auto run = require(Run::open(require(open_model(model, {})), options.complete()));
  require(run->plan());
  require(run->start());
  return run;
}
RunOptions searched(Bytes budget) {
  RunOptions options;
  options.batch_size = kBatch;
  options.forced.reset();
  options.budget = budget;
  options.find_least = true;
  options.alone = false;
  return options;
}
double step(Run& run, ColumnSource& data) {
  require(run.step(kBatch, [&](const BatchRequest& piece, const BatchBuffers& into) {
    return data.read(0, piece.first, piece.count, into);
  }));
  return run.session().tally("loss");
}

TEST(RunTest, ASmallerBudgetBetweenTwoStepsGoesOnWithTheLossesItWouldHaveHad) {
  const auto changed = start(searched(kGiB), "seed-1"), same = start(searched(kGiB), "seed-1");
  MemoryData made(changed->model(), kBatch, 5);
  ColumnSource& data = made.source();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(step(*changed, data), step(*same, data));
  const Bytes before = changed->found().plan.arena_bytes;

  RunOptions less = searched(changed->found().least_bytes);
  less.resident_before = changed->options().resident_before;
  require(changed->replan(less));
  EXPECT_LT(changed->session().plan().arena_bytes, before);
  EXPECT_LE(changed->session().plan().peak_bytes(), *less.budget);
  EXPECT_EQ(changed->budget().bytes, *less.budget);
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(step(*changed, data), step(*same, data), 1e-5);
  EXPECT_EQ(changed->optimizer().iteration, 6);

  require(changed->replan(searched(kGiB)));
  EXPECT_EQ(changed->session().plan().arena_bytes, before);
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(step(*changed, data), step(*same, data), 1e-5);
}

TEST(RunTest, ForcedSettingsReplaceAPlanAndRecomputeChangesNoBit) {
  RunOptions options = searched(0);
  const auto changed = start(options, golden("resnet.keras")), same = start(options, golden("resnet.keras"));
  ColumnSource data = golden_data("resnet", changed->model());
  EXPECT_EQ(step(*changed, data), step(*same, data));
  options.forced.emplace().recompute = 15;
  require(changed->replan(options));
  EXPECT_GT(changed->session().plan().settings.of(kRecompute), 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(step(*changed, data), step(*same, data));
}

TEST(RunTest, ABudgetThatNothingFitsLeavesTheRunAsItWas) {
  const auto changed = start(searched(kGiB)), same = start(searched(kGiB));
  ColumnSource data = golden_data("cnn", changed->model());
  EXPECT_EQ(step(*changed, data), step(*same, data));
  const Status refused = changed->replan(searched(kMiB));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kDoesNotFit) << to_text(refused.error());
  EXPECT_EQ(changed->budget().bytes, kGiB);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(step(*changed, data), step(*same, data));
}

// A plan counts the bytes of a prefetched batch only if the options ask for prefetching.
TEST(RunTest, APlanHoldsTheBytesOfABatchThatIsReadAhead) {
  RunOptions options;
  options.batch_size = kBatch;
  const auto plain = start(options);
  EXPECT_EQ(plain->found().plan.settings.of(kPrefetch), 0);
  options.forced->prefetch = 1;
  const auto ahead = start(options);
  EXPECT_EQ(ahead->found().plan.settings.of(kPrefetch), 1);
  EXPECT_GE(ahead->found().plan.data_bytes - plain->found().plan.data_bytes,
            kBatch * plain->model().inputs()[0].sample.elements() * 4);
}

TEST(RunTest, AModelWithoutWeightsHasNothingToEvaluateWith) {
  plimsoll::engine::RunOptions options;
  options.model = "seed-1";
  options.mode = Mode::kEvaluate;
  options.device = fast_device();
  const auto run = plimsoll::engine::Run::open(options);
  ASSERT_FALSE(run);
  EXPECT_NE(run.error().what.find("seed-1 has no weights to evaluate with"), std::string::npos) << run.error().what;
}

}  // namespace
}  // namespace plimsoll::engine::testing
