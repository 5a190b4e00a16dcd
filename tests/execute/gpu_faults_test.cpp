// Failures of a GPU: it has no room, another process takes its memory, or a kernel fails and the device is lost. Each
// must end in a clear error, and saved files must stay intact. Tests that need no GPU are in memory_growth_test.cpp and
// tests/cli/test_gpu_missing.py.
#ifdef PLIMSOLL_HAS_CUDA
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/gpu.h"
#include "tests/support/memory_data.h"
#include "tests/support/program.h"

namespace plimsoll::engine::testing {
namespace {

constexpr int kSeconds = 180;  // a run may first have to try all cuDNN engines
const std::string kOld = "what was saved before";

// Writes random images and labels to files. Returns the value for --data.
std::string write_images(const TemporaryFolder& folder, int64_t samples, int64_t pixels) {
  const auto write = [&](const std::string& name, DType dtype, const std::vector<int64_t>& dims, const void* data) {
    NpyWriter writer = require(NpyWriter::create(folder / name, dtype, dims));
    const auto bytes = static_cast<size_t>(TensorType{dtype, Shape(dims)}.bytes());
    require(writer.write({static_cast<const std::byte*>(data), bytes}));
    require(writer.commit());
  };
  const std::vector<int64_t> dims = {samples, pixels, pixels, 3};
  const auto x = random_uniform(Shape(dims), 3, 0, 1);
  const auto y = random_integers(10, samples, 4);
  write("x.npy", DType::kFloat32, dims, x.data());
  write("y.npy", DType::kInt32, {samples}, y.data());
  return (folder / "x.npy") + "," + (folder / "y.npy");
}

std::map<int64_t, double> losses_of(const std::string& log) {
  std::map<int64_t, double> losses;
  std::istringstream lines(text_of(log));
  for (std::string line; std::getline(lines, line);)
    if (const auto event = nlohmann::json::parse(line); event.at("event") == "step")
      losses[event.at("step")] = event.at("loss");
  return losses;
}

class GpuFaults : public OnGpu {
 protected:
  // Runs `fit` in a separate process, in this test's folder.
  Ended fit(const std::vector<std::string>& flags, const std::string& setting = "") {
    std::vector<std::string> words = {"fit"}, environment = this_environment();
    words.insert(words.end(), flags.begin(), flags.end());
    words.insert(words.end(), {"--device", "gpu", "--log", folder_ / "log.jsonl", "--save", folder_ / "out.keras"});
    if (!setting.empty()) {
      environment.push_back("LD_PRELOAD=" + beside_this_program("libfail_kernel.so"));
      environment.push_back(setting);
    }
    return run_program(folder_.path(), words, environment, kSeconds);
  }
  void save_old() const { std::ofstream(folder_ / "out.keras") << kOld; }
  void expect_old_is_there() const {
    EXPECT_EQ(text_of(folder_ / "out.keras"), kOld);
    expect_no_half_files(folder_);
  }

  const TemporaryFolder folder_;
};

class GpuKernelFails : public GpuFaults, public ::testing::WithParamInterface<const char*> {};

TEST_P(GpuKernelFails, InTheMiddleOfTrainingKeepsTheCheckpointAndANewProcessGoesOn) {
  constexpr int64_t kSamples = 64, kBatch = 8, kSteps = kSamples / kBatch;
  const std::string data = write_images(folder_, kSamples, 64);
  const std::vector<std::string> flags = {
      "seed-1", "--data",      data,          "--batch-size", std::to_string(kBatch), "--shuffle", "false",
      "--tf32", "false",       "--optimizer", "sgd",          "--learning-rate",      "0.01",      "--checkpoint-every",
      "2",      "--checkpoint"};
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> all = flags;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const Ended whole = fit(with({folder_ / "whole"}));
  ASSERT_EQ(whole.code, 0) << whole.messages;
  const auto want = losses_of(folder_ / "log.jsonl");
  ASSERT_EQ(want.size(), static_cast<size_t>(kSteps));

  save_old();
  const Ended broken = fit(with({folder_ / "state"}), std::string("PLIMSOLL_FAIL_KERNEL=") + GetParam() + ":2");
  EXPECT_TRUE(broken.exited) << broken.messages;
  EXPECT_EQ(broken.code, 6) << broken.messages;
  EXPECT_NE(broken.messages.find("error P605: the GPU failed"), std::string::npos) << broken.messages;
  EXPECT_NE(broken.messages.find("--resume"), std::string::npos) << broken.messages;
  expect_old_is_there();
  ASSERT_EQ(require(step_of_checkpoint(folder_ / "state")), 4);
  EXPECT_TRUE(validate(require(plan_of_checkpoint(folder_ / "state"))));

  const Ended resumed = fit(with({folder_ / "state", "--resume"}));
  ASSERT_EQ(resumed.code, 0) << resumed.messages;
  const auto got = losses_of(folder_ / "log.jsonl");
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [step, loss] : want) EXPECT_NEAR(got.at(step), loss, 1e-5 * std::abs(loss)) << "step " << step;
  EXPECT_TRUE(open_keras(folder_ / "out.keras"));
}

INSTANTIATE_TEST_SUITE_P(Gpu, GpuKernelFails, ::testing::Values("trap", "stray"),
                         [](const auto& which) { return std::string(which.param); });

TEST_F(GpuFaults, ANeighbourIsPlannedAround) {
  const std::string data = write_images(folder_, 256, 128);
  const Neighbour neighbour(kGiB);
  const Ended ended = fit({"seed-2", "--data", data, "--batch-size", "256", "--json"});
  ASSERT_EQ(ended.code, 0) << ended.messages;
  const auto done = nlohmann::json::parse(ended.results);
  EXPECT_LE(done.at("budget_bytes").get<Bytes>(), kGiB);
  EXPECT_EQ(done.at("arena_peak_bytes"), done.at("arena_planned_bytes"));
  EXPECT_LE(done.at("process_peak_bytes").get<Bytes>(), done.at("budget_bytes").get<Bytes>());
  EXPECT_NE(done.at("process_peak_counted_by").get<std::string>().find("NVML"), std::string::npos) << done;
}

void expect_says_who_holds_it(const std::string& text) {
  EXPECT_NE(text.find("free now: "), std::string::npos) << text;
  // Containers may hide other processes from the driver.
  EXPECT_TRUE(text.find("held by ") != std::string::npos || text.find("does not say which") != std::string::npos)
      << text;
}

TEST_F(GpuFaults, ABudgetThatIsNotFreeEndsBeforeAnythingRuns) {
  const std::string data = write_images(folder_, 256, 128);
  const Neighbour neighbour(kGiB);
  save_old();
  const Ended ended =
      fit({"seed-2", "--data", data, "--batch-size", "256", "--budget", "8GiB", "--checkpoint", folder_ / "state"});
  EXPECT_EQ(ended.code, 6) << ended.messages;
  EXPECT_NE(ended.messages.find("error P604: the plan needs "), std::string::npos) << ended.messages;
  EXPECT_NE(ended.messages.find("--budget "), std::string::npos) << ended.messages;
  expect_says_who_holds_it(ended.messages);
  EXPECT_TRUE(losses_of(folder_ / "log.jsonl").empty());
  EXPECT_FALSE(std::filesystem::exists(checkpoint_path(folder_ / "state")));
  expect_old_is_there();
}

TEST_F(GpuFaults, ACardWithoutRoomForTheLibrariesSaysSo) {
  const std::string data = write_images(folder_, 8, 64);
  const Neighbour neighbour(256 * kMiB);
  const Ended ended = fit({"seed-1", "--data", data, "--batch-size", "8"});
  EXPECT_EQ(ended.code, 6) << ended.messages;
  EXPECT_NE(ended.messages.find("error P604: "), std::string::npos) << ended.messages;
  expect_says_who_holds_it(ended.messages);
}

// The test enqueues a copy of more bytes than there are. The runtime refuses it at once, so nothing runs and the card
// stays usable. A failure inside a running kernel cannot be attributed to one backend: it ends CUDA's primary context,
// which both backends share. GpuKernelFails tests that in a separate process.
TEST_F(GpuFaults, OfTwoBackendsEachReportsWhatItCouldNotEnqueueItself) {
  const Graph graph = require(parse_graph(R"(graph "copy"
  %x = input f32[268435456] activations
  %h = to_host(%x) : f32[268435456] activations space=host
)"));
  const auto failing = require(make_cuda_backend({})), sound = require(make_cuda_backend({}));
  const auto here = require(failing->reserve(Space::kDevice, kMiB)),
             there = require(failing->reserve(Space::kHost, kMiB));
  const auto others = require(sound->reserve(Space::kDevice, kMiB));
  void* const from = here->at(0);
  void* const to = there->at(0);
  const auto kernel = require(failing->bind({graph, graph.nodes[0], "", {&from, 1}, {&to, 1}, nullptr, 0}));
  std::vector<float> numbers(64, 1), back(64, 0);
  const auto bytes = static_cast<Bytes>(numbers.size() * sizeof(float));
  for (int again = 0; again < 2; ++again) {
    kernel->run();
    EXPECT_TRUE(sound->finish());
    EXPECT_TRUE(others->write(0, numbers.data(), bytes));
    const Status failed = failing->finish();
    ASSERT_FALSE(failed);
    EXPECT_NE(to_text(failed.error()).find("in to_host"), std::string::npos) << to_text(failed.error());
    EXPECT_TRUE(failing->finish());  // an error is reported only once
    EXPECT_TRUE(here->write(0, numbers.data(), bytes));
    EXPECT_TRUE(here->read(0, back.data(), bytes));
    EXPECT_EQ(back, numbers);
  }
}

RunOptions gpu_options(bool growth) {
  RunOptions options;
  options.device = "gpu";
  options.batch_size = 64;
  options.memory_growth = growth;
  return options;
}

TEST_F(GpuFaults, MemoryTakenBetweenPlanAndStartIsAClearErrorAndNothingIsLost) {
  for (const bool growth : {false, true}) {
    const auto run = run_of("seed-2", gpu_options(growth));
    ASSERT_GT(run->plan().arena_bytes, 96 * kMiB);
    run->end_session();
    {
      const Neighbour neighbour(64 * kMiB);
      const Status refused = run->bind_again();
      ASSERT_FALSE(refused) << growth;
      EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory) << to_text(refused.error());
      expect_says_who_holds_it(to_text(refused.error()));
    }
    require(run->bind_again());
    require(initialize_weights(*run->session, 7));
    MemoryData data(run->open.model, 64, 5);
    EXPECT_TRUE(std::isfinite(run->step(data.source(), 0, 64)));
  }
}

TEST_F(GpuFaults, MemoryTakenBeforeAPhaseFirstRunsIsAClearErrorAndTheSessionGoesOnLater) {
  const auto run = run_of("seed-2", gpu_options(true));
  ASSERT_GT(run->plan().arena_bytes, run->plan().persistent_bytes + 96 * kMiB);
  MemoryData data(run->open.model, 64, 5);
  const auto accumulate = [&] {
    require(run->session->begin({64, 0, 1e-3, 3}));
    return run->session->accumulate(64, [&](const BatchBuffers& into) { return data.source().read(0, 0, 64, into); });
  };
  const Bytes held = run->session->arena_held_bytes();
  {
    const Neighbour neighbour(64 * kMiB);
    const Status refused = accumulate();
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory) << to_text(refused.error());
    expect_says_who_holds_it(to_text(refused.error()));
    EXPECT_EQ(run->session->arena_held_bytes(), held);
  }
  require(accumulate());
  require(run->session->apply());
  EXPECT_TRUE(std::isfinite(run->session->tally("loss")));
}

}  // namespace
}  // namespace plimsoll::engine::testing
#endif
