// Makes allocations of the program's own code fail. Each run must then end in a clear error, leak no memory, and leave
// no incomplete files.
//
// LeakSanitizer, loaded together with the library that makes allocations fail, finds leaks when the program returns
// from main(). It needs rights that some containers do not grant; there, leaks are not tested.
//
// The program runs once to list its allocations with their call paths. The first allocation of each path is made to
// fail. There are about ten thousand paths. By default an even sample of them is tried; PLIMSOLL_ALL_ALLOCATIONS=1
// tries all.
#include <gtest/gtest.h>

#include <set>

#include "tests/support/program.h"
#include "tests/support/run.h"

namespace plimsoll::engine::testing {
namespace {

constexpr size_t kSample = 160;  // runs per command
constexpr int kLeaked = 23;      // exit code of a program that leaked memory

Ended run_watched(const std::string& folder, const std::vector<std::string>& arguments, const std::string& setting,
                  bool seek_leaks) {
  return run_program(folder, arguments,
                     {"LD_PRELOAD=" + beside_this_program("libfail_allocation.so") +
                          (seek_leaks ? std::string(":") + PLIMSOLL_LEAK_SANITIZER : ""),
                      "LSAN_OPTIONS=exitcode=" + std::to_string(kLeaked), "OMP_NUM_THREADS=2", setting},
                     60);
}

// Returns whether leaks can be detected on this machine.
bool leaks_are_seen() {
  static const bool seen = [] {
    const TemporaryFolder folder;
    return run_watched(folder.path(), {"plan", "--list"}, "PLIMSOLL_LEAK=1", true).code == kLeaked;
  }();
  return seen;
}

std::vector<std::string> put_into(const TemporaryFolder& folder, std::vector<std::string> arguments) {
  for (std::string& word : arguments)
    if (const size_t at = word.find("FOLDER"); at != std::string::npos) word.replace(at, 6, folder.path());
  return arguments;
}

// Returns the numbers of the allocations to fail: the first one of each call path.
std::vector<int64_t> allocations_of(const std::vector<std::string>& arguments) {
  const TemporaryFolder folder, other;
  const Ended ended =
      run_watched(folder.path(), put_into(folder, arguments), "PLIMSOLL_ALLOCATION_LOG=" + (folder / "log"), false);
  EXPECT_EQ(ended.code, 0) << ended.messages;
  // The library itself must not disturb the run: if the chosen allocation never happens, the run succeeds.
  const Ended watched =
      run_watched(other.path(), put_into(other, arguments), "PLIMSOLL_FAIL_ALLOCATION=1000000000", leaks_are_seen());
  EXPECT_EQ(watched.code, 0) << watched.messages;
  std::ifstream log(folder / "log");
  std::set<std::string> seen;
  std::vector<int64_t> first;
  std::string line;
  for (int64_t n = 1; std::getline(log, line); ++n)
    if (seen.insert(line).second) first.push_back(n);
  EXPECT_GT(first.size(), 1000U);
  if (std::getenv("PLIMSOLL_ALL_ALLOCATIONS") != nullptr || first.size() <= kSample) return first;
  std::vector<int64_t> sample;
  for (size_t i = 0; i < kSample; ++i) sample.push_back(first[i * first.size() / kSample]);
  return sample;
}

// Runs the tries in two threads, because every machine has at least two cores.
template <typename Check>
void fail_each(const std::vector<std::string>& arguments, Check check) {
  const std::vector<int64_t> numbers = allocations_of(arguments);
  std::atomic<size_t> next{0};
  std::atomic<int> refused{0};
  const auto work = [&] {
    for (size_t i = next++; i < numbers.size(); i = next++) {
      const TemporaryFolder folder;
      std::filesystem::copy_file(golden("mlp.keras"), folder / "out.keras");
      const std::vector<std::string> here = put_into(folder, arguments);
      const Ended ended =
          run_watched(folder.path(), here, "PLIMSOLL_FAIL_ALLOCATION=" + std::to_string(numbers[i]), leaks_are_seen());
      const std::string what = "allocation " + std::to_string(numbers[i]) + ": ended with " +
                               std::to_string(ended.code) + "\n" + ended.messages;
      EXPECT_FALSE(ended.hung) << what;
      EXPECT_TRUE(ended.exited) << what;  // it was not ended by a signal: no std::terminate, no crash
      EXPECT_TRUE(ended.code == 0 || ended.code == 6) << what;
      if (ended.code != 0) {
        ++refused;
        EXPECT_NE(ended.messages.find("error P"), std::string::npos) << what;
      }
      expect_no_half_files(folder, what);
      check(folder, here, ended, what);
    }
  };
  std::thread other(work);
  work();
  other.join();
  EXPECT_GT(refused, 0);
}

class FailAllocation : public ::testing::Test {
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__)
    GTEST_SKIP() << "the sanitizer has an operator new of its own";
#elif !defined(PLIMSOLL_HAS_CPU)
    GTEST_SKIP() << "the commands tried here train on the CPU";
#endif
  }
};

TEST_F(FailAllocation, MemoryThatIsLostIsSeen) {
  const TemporaryFolder folder;
  EXPECT_EQ(run_watched(folder.path(), {"plan", "--list"}, "PLIMSOLL_FAIL_ALLOCATION=0", true).code, 0);
  if (!leaks_are_seen()) GTEST_SKIP() << "LeakSanitizer cannot run here";
}

TEST_F(FailAllocation, InPlanEndsInAClearError) {
  fail_each({"plan", golden("cnn.keras"), "--batch-size", "4", "--budget", "512MiB", "--save", "FOLDER/plan.json"},
            [](const TemporaryFolder& folder, const auto&, const Ended&, const std::string& what) {
              if (!std::filesystem::exists(folder / "plan.json")) return;
              const auto json = nlohmann::json::parse(text_of(folder / "plan.json"), nullptr, false);
              EXPECT_FALSE(json.is_discarded()) << what;
              EXPECT_TRUE(plan_from_json(json)) << what;
            });
}

TEST_F(FailAllocation, InFitEndsInAClearErrorAndLeavesWholeFiles) {
  const std::string before = text_of(golden("mlp.keras"));
  std::atomic<int> resumed{0};
  fail_each({"fit", golden("cnn.keras"), "--data", golden("cnn_x.npy") + "," + golden("cnn_y.npy"), "--batch-size",
             "10", "--budget", "512MiB", "--checkpoint", "FOLDER/state", "--checkpoint-every", "1", "--save",
             "FOLDER/out.keras", "--log", "FOLDER/log.jsonl", "--threads", "2"},
            [&](const TemporaryFolder& folder, std::vector<std::string> arguments, const Ended& ended,
                const std::string& what) {
              // The old file still exists, or a complete new file has replaced it.
              if (text_of(folder / "out.keras") != before) {
                const auto archive = open_keras(folder / "out.keras");
                ASSERT_TRUE(archive) << what;
                EXPECT_EQ(archive->config.at("config").at("name"), "cnn") << what;
                EXPECT_TRUE(archive->weights.has_value()) << what;
              } else {
                EXPECT_NE(ended.code, 0) << what;
              }
              if (!std::filesystem::exists(checkpoint_path(folder / "state"))) return;
              const auto plan = plan_of_checkpoint(folder / "state");
              ASSERT_TRUE(plan) << what;
              EXPECT_TRUE(validate(*plan)) << what;
              if (ended.code == 0 || resumed++ % 4 != 0) return;
              arguments.push_back("--resume");
              const Ended again = run_watched(folder.path(), arguments, "PLIMSOLL_FAIL_ALLOCATION=0", false);
              EXPECT_EQ(again.code, 0) << what << "\nthen: " << again.messages;
              EXPECT_TRUE(open_keras(folder / "out.keras")) << what;
            });
  EXPECT_GT(resumed, 0);
}

}  // namespace
}  // namespace plimsoll::engine::testing
