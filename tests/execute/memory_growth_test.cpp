// Memory growth and failing devices: how the session and the training loop handle both, on a simulated GPU. Tests on a
// real GPU are in gpu_growth_test.cpp and gpu_faults_test.cpp.
#include <dlfcn.h>

#include "device/process_memory.h"
#include "tests/support/memory_data.h"
#include "tests/support/pretend_gpu.h"
#include "tests/support/program.h"

namespace plimsoll::engine::testing {
namespace {

constexpr int64_t kSamples = 17, kBatch = 6, kMicro = 2, kEpochs = 2, kHeldOut = 7;
constexpr int64_t kWindows = 3;  // per epoch: windows of 6, 6 and 5 samples

std::unique_ptr<ModelRun> make_run(const std::shared_ptr<PretendState>& state) {
  RunOptions options;
  options.batch_size = kBatch;
  options.forced->micro = kMicro;
  options.data.samples = kSamples;
  options.validates(1, kHeldOut);
  if (state)
    options.wrap_backend = [&](std::unique_ptr<Backend> host) {
      return std::make_unique<PretendGpu>(std::move(host), state);
    };
  return run_of(small_cnn(), optimizers::Adam(0.01), losses::SparseCategoricalCrossentropy(), options);
}

Bytes pages(Bytes bytes) {
  return align_up(bytes + Memory::kGuard, sysconf(_SC_PAGESIZE));
}

// Returns the end of the arena that evaluation needs with one sample per batch. Training needs more.
Bytes evaluation_end(const Plan& plan) {
  const Bytes end = plan.phase(PhaseKind::kEvaluate)->arena_bytes;
  EXPECT_LT(pages(plan.persistent_bytes), pages(end));
  EXPECT_LT(pages(end), pages(plan.arena_bytes));
  return end;
}

Status evaluate(ModelRun& run, MemoryData& data) {
  return run.session->evaluate(1, [&](const BatchBuffers& into) { return data.source().read(0, 0, 1, into); });
}

TEST(MemoryGrowth, EachPhaseTakesItsMemoryWhenItFirstRuns) {
  const auto state = std::make_shared<PretendState>();
  const auto run = make_run(state);
  const Plan& plan = run->plan();
  // The dry run went through all phases, from the smallest to the largest, and released all but the persistent bytes.
  ASSERT_GT(state->commits.size(), 2U);
  EXPECT_TRUE(std::is_sorted(state->commits.begin(), state->commits.end()));
  EXPECT_EQ(state->commits.front(), pages(plan.persistent_bytes));
  EXPECT_EQ(state->commits.back(), pages(plan.arena_bytes));
  EXPECT_EQ(run->session->arena_held_bytes(), pages(plan.persistent_bytes));

  MemoryData data(run->open.model, kSamples, 5);
  require(evaluate(*run, data));
  EXPECT_EQ(run->session->arena_held_bytes(), pages(evaluation_end(plan)));
  run->step(data.source(), 0, kBatch);
  EXPECT_EQ(run->session->arena_held_bytes(), pages(plan.arena_bytes));
  const size_t taken = state->commits.size();
  run->step(data.source(), 0, kBatch);
  require(evaluate(*run, data));
  EXPECT_EQ(state->commits.size(), taken);
  run->end_session();
  EXPECT_EQ(state->mapped, 0);
}

TEST(MemoryGrowth, ChangesNoBitOfTheTraining) {
  const auto plain = make_run(nullptr), grown = make_run(std::make_shared<PretendState>());
  MemoryData data(plain->open.model, kSamples, 5);
  for (int64_t i = 0; i < 2; ++i)
    EXPECT_EQ(grown->step(data.source(), i * kBatch, kBatch), plain->step(data.source(), i * kBatch, kBatch)) << i;
  for (const Weight& weight : plain->open.model.weights())
    EXPECT_EQ(grown->values(weight.name), plain->values(weight.name)) << weight.name;
}

TEST(MemoryGrowth, WhatHadNoRoomRunsOnceThereIsRoom) {
  const auto state = std::make_shared<PretendState>();
  const auto run = make_run(state);
  MemoryData data(run->open.model, kSamples, 5);
  state->room = pages(evaluation_end(run->plan()));
  EXPECT_TRUE(evaluate(*run, data));
  Status refused = run->session->begin(require(next_window(*run->session, run->state, kBatch, 3)));
  if (refused)
    refused = run->session->accumulate(
        kMicro, [&](const BatchBuffers& into) { return data.source().read(0, 0, kMicro, into); });
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  state->room = pages(run->plan().arena_bytes);
  run->step(data.source(), 0, kBatch);
  EXPECT_TRUE(evaluate(*run, data));
}

// Breaks the device after a step.
class Breaker : public FitObserver {
 public:
  explicit Breaker(std::function<void(int64_t)> action) : action_(std::move(action)) {}
  Status on_step(const StepEvent& event, FitControl&) override {
    action_(event.step);
    return {};
  }

 private:
  std::function<void(int64_t)> action_;
};

Result<FitResult> work(ModelRun& run, const std::string& folder, bool resume, FitObserver& observer) {
  MemoryData train(run.open.model, kSamples, 21, false, {0, -1, true, 9, {}}), held(run.open.model, kHeldOut, 31);
  FitOptions options;
  options.epochs = kEpochs;
  options.seed = 9;
  options.checkpoint_folder = folder;
  options.checkpoint_every_steps = 1;
  options.resume = resume;
  options.identity = {{"model", "small_cnn"}};
  return fit(*run.session, train.source(), &held.source(), run.state, options, observer);
}

using Values = std::map<std::string, std::vector<double>>;

// Returns the weights after a run that succeeds.
Values finish(const std::string& folder, bool resume) {
  const auto run = make_run(std::make_shared<PretendState>());
  FitObserver quiet;
  const FitResult result = require(work(*run, folder, resume, quiet));
  EXPECT_EQ(result.optimizer.iteration, kWindows * kEpochs);
  Values values;
  for (const Weight& weight : run->open.model.weights()) values[weight.name] = run->values(weight.name);
  return values;
}

const Values& unbroken() {
  static const Values values = [] {
    const TemporaryFolder folder;
    return finish(folder.path(), false);
  }();
  return values;
}

TEST(DeviceFaults, NoRoomToGoOnKeepsTheCheckpoint) {
  const TemporaryFolder folder;
  constexpr int64_t kLost = 2;
  {
    const auto state = std::make_shared<PretendState>();
    const auto run = make_run(state);
    Breaker breaker([&](int64_t step) { state->lost = step == kLost; });
    ASSERT_FALSE(work(*run, folder.path(), false, breaker));
  }
  const int64_t reached = require(step_of_checkpoint(folder.path()));
  ASSERT_GE(reached, 1);
  const auto state = std::make_shared<PretendState>();
  const auto run = make_run(state);
  state->room = pages(evaluation_end(run->plan()));  // another process takes the rest after the dry run
  FitObserver quiet;
  const auto result = work(*run, folder.path(), true, quiet);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(require(step_of_checkpoint(folder.path())), reached);
  EXPECT_EQ(finish(folder.path(), true), unbroken());
}

TEST(DeviceFaults, ADeviceLostAfterAnyStepLeavesTheLastCheckpointAsItWas) {
  for (int64_t step = 1; step <= kWindows * kEpochs; ++step) {
    const auto state = std::make_shared<PretendState>();
    const auto run = make_run(state);
    const TemporaryFolder folder;
    std::string before;
    Breaker breaker([&](int64_t now) {
      if (now != step) return;
      state->lost = true;
      before = text_of(checkpoint_path(folder.path()));
    });
    const auto result = work(*run, folder.path(), false, breaker);
    ASSERT_FALSE(result) << step;
    EXPECT_EQ(result.error().code, ErrorCode::kDeviceLost) << step;
    EXPECT_EQ(exit_code(result.error().code), 6);
    EXPECT_EQ(text_of(checkpoint_path(folder.path())), before) << step;
    EXPECT_EQ(before.empty(), step == 1);
    expect_no_half_files(folder, "step " + std::to_string(step));
    EXPECT_EQ(finish(folder.path(), true), unbroken()) << step;
  }
}

TEST(DeviceFaults, OfTwoDevicesInOneProcessEachReportsItsOwnFailureOnce) {
  const auto failing = std::make_shared<PretendState>(), sound = std::make_shared<PretendState>();
  const auto first = make_run(failing), second = make_run(sound);
  MemoryData data(first->open.model, kSamples, 5);
  const auto evaluated = [&](ModelRun& run) { return evaluate(run, data) && run.session->collect(); };
  for (const char* what : {"one kernel could not be started", "another could not"}) {
    failing->failures.note(Error{ErrorCode::kInternal, what, {}, {}});
    failing->failures.note(Error{ErrorCode::kInternal, "what came of that", {}, {}});
    EXPECT_TRUE(evaluated(*second));
    const Status failed = evaluate(*first, data);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().what, what);
    EXPECT_TRUE(evaluated(*second));
    EXPECT_TRUE(evaluated(*first));
  }
}

TEST(MemoryGrowth, TensorFlowsVariableWinsAsItDoesThere) {
  for (const bool asked : {false, true}) {
    EXPECT_EQ(choose_memory_growth(asked, nullptr).on, asked);
    EXPECT_TRUE(choose_memory_growth(asked, "true").on);
    EXPECT_FALSE(choose_memory_growth(asked, "false").on);
    for (const char* other : {"", "1", "True", "yes"}) {
      EXPECT_EQ(choose_memory_growth(asked, other).on, asked) << other;
      EXPECT_NE(choose_memory_growth(asked, other).note.find(kForceGrowth), std::string::npos) << other;
    }
  }
  EXPECT_EQ(choose_memory_growth(true, nullptr).note, "");
  EXPECT_EQ(choose_memory_growth(false, "true").note, "");
  EXPECT_NE(choose_memory_growth(true, "false").note, "");
}

// compute-sanitizer is detected by its environment variable or by its library.
TEST(OverheadBound, LeavesOutWhatComputeSanitizerHolds) {
  const Bytes without = held_by_tools();
  EXPECT_LE(without, kGiB);
  const TemporaryFolder folder;
  const std::string library = folder / "libsanitizer-collection.so";
  std::filesystem::copy_file(beside_this_program("libfail_kernel.so"), library);
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(handle, nullptr) << dlerror();
  EXPECT_GT(held_by_tools(), kGiB * 1024);
  dlclose(handle);
  EXPECT_EQ(held_by_tools(), without);
}

}  // namespace
}  // namespace plimsoll::engine::testing
