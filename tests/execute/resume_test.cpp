// A run that is stopped and resumed gives bit for bit the same result as an uninterrupted run.
#include <fstream>

#include "execute/checkpoint_folder.h"
#include "tests/support/memory_data.h"
#include "tests/support/program.h"

namespace plimsoll::engine::testing {
namespace {

constexpr int64_t kSamples = 17, kBatch = 6, kMicro = 2, kEpochs = 2;
constexpr int64_t kReads = 3 + 3 + 3;  // reads per epoch: windows of 6, 6 and 5 samples, in three micro-batches each

struct Outcome {
  std::map<std::string, std::vector<double>> values;
  std::vector<Metric> last;  // metrics of the last epoch
  int64_t iteration = 0;
  bool interrupted = false;
  bool mid_window = false;
};

std::unique_ptr<ModelRun> make_run(int prefetch) {
  RunOptions options;
  options.batch_size = kBatch;
  options.forced->micro = kMicro;
  options.data.samples = kSamples;
  options.validates(4, 7);
  options.forced->prefetch = prefetch;
  options.data.sample_weights = true;
  Description description;
  description.config = nlohmann::json::parse(small_cnn().to_json());
  description.compile_config = {{"optimizer", nlohmann::json::parse(optimizers::Adam(0.01).to_json())},
                                {"loss", nlohmann::json::parse(losses::SparseCategoricalCrossentropy().to_json())},
                                {"metrics", {"accuracy"}},
                                {"weighted_metrics", {"accuracy"}}};
  return std::make_unique<ModelRun>(require(open_description(description, "", {})), options);
}

// Does the work of one process. It stops after this many reads of the training or validation data (0: never).
Outcome work(const std::string& folder, int prefetch, int64_t stop_after, int64_t stop_in_validation, bool resume) {
  const auto run = make_run(prefetch);
  MemoryData train(run->open.model, kSamples, 21, true, {0, -1, true, 9, {}}), held(run->open.model, 7, 31, true);
  std::atomic<bool> stop{false};
  WatchedSource data(train.source(), [&](int64_t reads) {
    if (reads == stop_after) stop = true;
  });
  WatchedSource validation(held.source(), [&](int64_t reads) {
    if (reads == stop_in_validation) stop = true;
  });
  FitOptions options;
  options.epochs = kEpochs;
  options.seed = 9;
  options.checkpoint_folder = folder;
  options.resume = resume;
  options.stop = &stop;
  options.identity = {{"model", "small_cnn"}};
  FitObserver quiet;
  const FitResult result = require(fit(*run->session, data, &validation, run->state, options, quiet));
  Outcome outcome;
  outcome.interrupted = result.interrupted;
  outcome.mid_window = result.mid_window;
  outcome.iteration = result.optimizer.iteration;
  if (!result.history.empty()) outcome.last = result.history.back().metrics;
  for (const PersistentSlot& slot : run->plan().persistent)
    if (slot.category == Category::kWeights || slot.category == Category::kOptimizer)
      outcome.values[slot.name] = run->values(slot.name);
  return outcome;
}

const Outcome& in_one_piece() {
  static const Outcome outcome = [] {
    const TemporaryFolder folder;
    return work(folder.path(), 0, 0, 0, false);
  }();
  return outcome;
}

void expect_the_same(const Outcome& got, const std::string& what) {
  const Outcome& want = in_one_piece();
  EXPECT_FALSE(got.interrupted) << what;
  EXPECT_EQ(got.iteration, want.iteration) << what;
  EXPECT_EQ(got.values, want.values) << what;
  ASSERT_EQ(got.last.size(), want.last.size()) << what;
  EXPECT_EQ(want.last.size(), 6U) << what;  // loss, accuracy and weighted accuracy, of training and of validation
  for (size_t i = 0; i < want.last.size(); ++i) {
    EXPECT_EQ(got.last[i].name, want.last[i].name) << what;
    EXPECT_EQ(got.last[i].value, want.last[i].value) << what << ": " << want.last[i].name;
  }
}

TEST(Resume, AfterEachMicroBatchGivesTheSameBits) {
  EXPECT_EQ(in_one_piece().iteration, 3 * kEpochs);
  for (int64_t stop = 1; stop <= kReads * kEpochs; ++stop) {
    const TemporaryFolder folder;
    // Stopping after an epoch's last micro-batch leaves its validation for the resumed run, because validation may take
    // longer than the sender of the signal waits.
    const Outcome first = work(folder.path(), 0, stop, 0, false);
    ASSERT_TRUE(first.interrupted) << "stopped after micro-batch " << stop;
    EXPECT_EQ(first.mid_window, stop % 3 != 0) << stop;
    expect_the_same(work(folder.path(), 0, 0, 0, true), "stopped after micro-batch " + std::to_string(stop));
  }
}

// The reading thread is an unknown number of batches ahead of training. Batches that were read but not used are read
// again.
TEST(Resume, WithReadAheadGivesTheSameBits) {
  for (int64_t stop : {2, 5, 9, 13}) {
    const TemporaryFolder folder;
    work(folder.path(), 1, stop, 0, false);
    expect_the_same(work(folder.path(), 1, 0, 0, true), "read ahead, stopped near micro-batch " + std::to_string(stop));
  }
}

TEST(Resume, AfterAnEpochsValidationGivesTheSameBits) {
  const TemporaryFolder folder;
  const Outcome first = work(folder.path(), 0, 0, 1, false);
  EXPECT_TRUE(first.interrupted);
  EXPECT_FALSE(first.mid_window);
  EXPECT_EQ(first.iteration, 3);
  expect_the_same(work(folder.path(), 0, 0, 0, true), "stopped in the validation of epoch 1");
}

TEST(Resume, AgainAndAgainGivesTheSameBits) {
  const TemporaryFolder folder;
  Outcome outcome = work(folder.path(), 0, 1, 0, false);
  int pieces = 1;
  for (; outcome.interrupted && pieces < 100; ++pieces) outcome = work(folder.path(), 0, 1, 0, true);
  EXPECT_EQ(pieces, kReads * kEpochs + 1);  // the last run only validates
  expect_the_same(outcome, "stopped after every micro-batch");
}

Result<FitResult> try_to_resume(const std::string& folder) {
  const auto run = make_run(1);
  MemoryData train(run->open.model, kSamples, 21, true, {0, -1, true, 9, {}}), held(run->open.model, 7, 31, true);
  FitOptions options;
  options.epochs = kEpochs;
  options.seed = 9;
  options.checkpoint_folder = folder;
  options.resume = true;
  options.identity = {{"model", "small_cnn"}};
  FitObserver quiet;
  return fit(*run->session, train.source(), &held.source(), run->state, options, quiet);
}

// Changes the header of the checkpoint in a folder, and its CRC.
void rewrite(const std::string& folder, const std::function<void(nlohmann::json&)>& edit) {
  const auto run = make_run(0);
  const Checkpoint stored = require(open_checkpoint(checkpoint_path(folder)));
  std::vector<std::vector<std::byte>> data;
  std::vector<CheckpointTensor> tensors;
  for (const auto& entry : stored.tensors()) {
    data.emplace_back(static_cast<size_t>(entry.type.bytes()));
    require(stored.read_into(entry.name, entry.type, data.back().data()));
    tensors.push_back({entry.name, entry.type, data.back().data()});
  }
  nlohmann::json header = stored.header();
  edit(header);
  require(write_checkpoint(checkpoint_path(folder), header, tensors));
}

TEST(Resume, BelievesNoNumberOfAHeader) {
  const TemporaryFolder folder;
  work(folder.path(), 0, 4, 0, false);  // stops in the second window
  const std::string whole = text_of(checkpoint_path(folder.path()));
  constexpr int64_t k2To40 = int64_t{1} << 40, k2To62 = int64_t{1} << 62;
  const nlohmann::json kNone;
  const std::vector<std::pair<const char*, nlohmann::json>> edits = {{"window", -1},
                                                                     {"window", -k2To40},
                                                                     {"window", 1e300},
                                                                     {"window", 4},
                                                                     {"window", k2To62},
                                                                     {"window", 0},
                                                                     {"window", 2.0},
                                                                     {"window", "1"},
                                                                     {"window", UINT64_MAX},
                                                                     {"done", -8},
                                                                     {"done", -k2To40},
                                                                     {"done", k2To62},
                                                                     {"done", 3},
                                                                     {"done", 6},
                                                                     {"done", kNone},
                                                                     {"epoch", -1},
                                                                     {"epoch", k2To62},
                                                                     {"epoch", 1},
                                                                     {"steps", -1},
                                                                     {"steps", 2},
                                                                     {"steps", k2To62},
                                                                     {"iteration", -1},
                                                                     {"iteration", INT64_MAX},
                                                                     {"learning_rate", kNone},
                                                                     {"learning_rate", "inf"},
                                                                     {"learning_rate", {1}},
                                                                     {"weight_sums", {}},
                                                                     {"weight_sums", {1, 2}},
                                                                     {"weight_sums", {"nan"}},
                                                                     {"weight_sums", 3},
                                                                     {"epoch_sums", kNone},
                                                                     {"epoch_sums", {1, 2}},
                                                                     {"epoch_sums", {{"sums", {1}}, {"weights", {1}}}},
                                                                     {"format", 3},
                                                                     {"format", "plimsoll.checkpoint/1"},
                                                                     {"identity", nlohmann::json::array()},
                                                                     {"identity", 5},
                                                                     {"callbacks", kNone},
                                                                     {"callbacks", {1}}};
  for (const auto& [key, value] : edits) {
    std::ofstream(checkpoint_path(folder.path()), std::ios::binary) << whole;
    rewrite(folder.path(), [&, key = key, value = value](nlohmann::json& header) { header[key] = value; });
    const auto result = try_to_resume(folder.path());
    ASSERT_FALSE(result) << key << " " << value;
    EXPECT_EQ(result.error().code, ErrorCode::kBadCheckpoint) << key << " " << value << ": " << result.error().what;
  }
  std::ofstream(checkpoint_path(folder.path()), std::ios::binary) << whole;
  EXPECT_TRUE(try_to_resume(folder.path()));
}

TEST(Resume, RefusesTheCheckpointOfAnotherRun) {
  const TemporaryFolder folder;
  work(folder.path(), 0, 1, 0, false);
  const auto run = make_run(0);
  MemoryData train(run->open.model, kSamples, 21, true);
  FitOptions options;
  options.checkpoint_folder = folder.path();
  options.resume = true;
  options.identity = {{"model", "another"}};
  FitObserver quiet;
  const auto result = fit(*run->session, train.source(), nullptr, run->state, options, quiet);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kBadCheckpoint);
}

}  // namespace
}  // namespace plimsoll::engine::testing
