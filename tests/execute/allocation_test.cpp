// Tests how much a running session takes from the heap, and that it gives it back.
#include <malloc.h>

#include "device/process_memory.h"
#include "tests/support/allocations.h"
#include "tests/support/memory_data.h"

namespace plimsoll::engine::testing {
namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr bool kOwnHeap = false;  // the sanitizer's heap keeps freed memory
#else
constexpr bool kOwnHeap = true;
#endif

const std::vector<std::string> kModels = {golden("cnn.keras"), golden("resnet.keras"), golden("mlp.keras"),
                                          golden("oldest.keras"), "fashion-cnn"};

RunOptions batch_of_eight(bool cut) {
  RunOptions options;
  options.batch_size = 8;
  if (cut) options.forced->micro = 3;
  options.per_micro_batch_norm = true;
  return options;
}

TEST(Allocation, IsCounted) {
  if (!kOwnHeap) GTEST_SKIP();
  const AllocationWatch watch;
  std::vector<char> some(5000);
  some[7] = 1;
  EXPECT_GE(watch.largest(), 5000U);
  EXPECT_GE(watch.count(), 1);
}

TEST(Allocation, NoStepAfterTheFirstTakesMoreThanAKibibyte) {
  if (fast_device() != "cpu") GTEST_SKIP() << "the reference may allocate";
  if (!kOwnHeap) GTEST_SKIP();
  for (const std::string& model : kModels)
    for (const bool cut : {false, true}) {
      const auto run = run_of(model, batch_of_eight(cut));
      MemoryData data(run->open.model, 16, 1);
      run->step(data.source(), 0, 8);
      for (int i = 0; i < 3; ++i) {
        const AllocationWatch watch;
        run->step(data.source(), 8, 8);
        EXPECT_LE(watch.largest(), 1024U) << model << ", step " << i + 1;
      }
    }
}

// The dry run has run one node of each kind. The first steps, which run all nodes, take almost no additional memory.
TEST(Allocation, TheDryRunSawWhatTrainingHolds) {
  if (fast_device() != "cpu") GTEST_SKIP() << "the reference may allocate";
  if (!kOwnHeap) GTEST_SKIP();
  for (const std::string& model : kModels)
    for (const bool cut : {false, true}) {
      RunOptions options = batch_of_eight(cut);
      options.validates(8);
      const auto run = run_of(model, options);
      MemoryData data(run->open.model, 16, 1);
      const Bytes before = run->session->overhead_now();
      for (int i = 0; i < 2; ++i) run->step(data.source(), 8 * i, 8);
      EXPECT_LE(run->session->overhead_now() - before, 256 * kKiB) << model;
      EXPECT_LE(run->session->overhead_measured_bytes(), run->plan().overhead_bytes) << model;
    }
}

// Observes a fit: resident memory and the heap after the first steps, and at the end.
class Growth : public FitObserver {
 public:
  Status on_step(const StepEvent& event, FitControl&) override {
    if (event.step == 10) resident_ = resident_bytes(), heap_ = static_cast<Bytes>(mallinfo2().uordblks);
    last_ = event.step;
    grown_ = resident_bytes() - resident_;
    heap_grown_ = static_cast<Bytes>(mallinfo2().uordblks) - heap_;
    return {};
  }
  int64_t last_ = 0;
  Bytes resident_ = 0, heap_ = 0, grown_ = 0, heap_grown_ = 0;
};

TEST(Allocation, AThousandStepsDoNotGrow) {
  if (!kOwnHeap) GTEST_SKIP();
  for (const int prefetch : {0, 1}) {
    RunOptions options;
    options.batch_size = 4;
    options.forced->micro = prefetch == 1 ? 2 : 4;
    options.forced->prefetch = prefetch;
    const auto run = run_of(small_cnn(), optimizers::Adam(), losses::SparseCategoricalCrossentropy(), options);
    MemoryData data(run->open.model, 4000, 1, false, {0, -1, true, 1, {}});
    Growth growth;
    require(fit(*run->session, data.source(), nullptr, run->state, {}, growth));
    EXPECT_EQ(growth.last_, 1000);
    EXPECT_LT(growth.grown_, 256 * kKiB) << "prefetch " << prefetch;
    EXPECT_LE(growth.heap_grown_, kKiB) << "prefetch " << prefetch;
  }
}

TEST(Allocation, FiftyModelsInTurnLeaveNothingBehind) {
  if (!kOwnHeap) GTEST_SKIP();
  Bytes after_fifth = 0, after_last = 0;
  for (int i = 1; i <= 50; ++i) {
    {
      RunOptions options;
      options.batch_size = 8;
      const auto run = run_of(kModels[static_cast<size_t>(i - 1) % kModels.size()], options);
      MemoryData data(run->open.model, 8, 1);
      for (int step = 0; step < 2; ++step) run->step(data.source(), 0, 8);
    }
    if (i == 5) after_fifth = resident_bytes();
    after_last = resident_bytes();
  }
  RecordProperty("after_fifth", std::to_string(after_fifth));
  RecordProperty("after_fiftieth", std::to_string(after_last));
  std::printf("resident after the fifth model %lld bytes, after the fiftieth %lld\n",
              static_cast<long long>(after_fifth), static_cast<long long>(after_last));
  EXPECT_LE(static_cast<double>(after_last), 1.01 * static_cast<double>(after_fifth));
}

}  // namespace
}  // namespace plimsoll::engine::testing
