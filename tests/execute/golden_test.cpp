// Compares five optimizer steps of small models with Keras's recorded results (tests/golden/make_golden.py), and checks
// which parts of the arena those steps changed.
#include "execute/probe.h"
#include "tests/support/run.h"

namespace plimsoll::engine::testing {
namespace {

constexpr int64_t kBatch = 4, kSteps = 5;
const char* const kModels[] = {"cnn", "resnet", "mlp"};

// Keras ran in float32. Sums of some hundred products depend on the order of additions, by units of 2^-24 of the
// largest partial sum. Adam divides a gradient by its own magnitude, so for an element whose terms cancel, the rounding
// error can become a step of the size of the learning rate. The bounds allow for that. They are relative to the largest
// magnitude of a tensor.
constexpr double kLoss = 1e-5, kWeight = 3e-5, kState = 3e-5;

class Golden : public ::testing::TestWithParam<std::tuple<const char*, std::string>> {
 protected:
  std::string name() const { return std::get<0>(GetParam()); }
  RunOptions options() const {
    RunOptions options;
    options.device = std::get<1>(GetParam());
    options.batch_size = kBatch;
    return options;
  }
  std::string expected() const { return golden(name() + "_expected.npz"); }
};

TEST_P(Golden, FiveStepsGiveTheLossesWeightsAndMomentsOfKeras) {
  const auto run = run_of(golden(name() + ".keras"), options());
  const ColumnSource data = golden_data(name(), run->open.model);
  const std::vector<double> losses = read_npz(expected(), "losses");
  ASSERT_EQ(losses.size(), static_cast<size_t>(kSteps));
  for (int64_t i = 0; i < kSteps; ++i) {
    const double want = losses[static_cast<size_t>(i)];
    EXPECT_NEAR(run->step(data, i * kBatch, kBatch), want, kLoss * std::abs(want)) << "step " << i;
  }
  const auto& weights = run->open.model.weights();
  for (size_t k = 0; k < weights.size(); ++k)
    EXPECT_LE(relative_difference(run->values(weights[k].name), read_npz(expected(), "after/" + std::to_string(k))),
              kWeight)
        << weights[k].name;

  size_t index = run->open.model.optimizer().schedule.is_null() ? 2 : 1;
  EXPECT_EQ(read_npz(expected(), "state/0"), std::vector<double>{static_cast<double>(run->state.iteration)});
  for (const std::string& state : state_values(run->open.model))
    EXPECT_LE(relative_difference(run->values(state), read_npz(expected(), "state/" + std::to_string(index++))), kState)
        << state;
}

TEST_P(Golden, WeightsInTheFileAreTheOnesKerasStartedFrom) {
  const auto run = run_of(golden(name() + ".keras"), options());
  const auto& weights = run->open.model.weights();
  for (size_t k = 0; k < weights.size(); ++k)
    EXPECT_EQ(run->values(weights[k].name), read_npz(expected(), "before/" + std::to_string(k))) << weights[k].name;
}

TEST_P(Golden, ArenaUsedIsTheArenaPlannedAndNothingBehindItChanges) {
  for (const std::optional<int64_t> micro : {std::optional<int64_t>{}, std::optional<int64_t>{3}}) {
    RunOptions cut = options();
    cut.forced->micro = micro;
    cut.per_micro_batch_norm = true;
    cut.validates(kBatch);
    const auto run = run_of(golden(name() + ".keras"), cut);
    ColumnSource data = golden_data(name(), run->open.model);
    Probe(*run->session).fill_pattern();
    EXPECT_EQ(Probe(*run->session).first_changed_byte(run->plan().persistent_bytes), -1);

    // Run only evaluation first. It is the smaller phase, so there is arena above the part that it may change.
    const PhasePlan* evaluate = run->plan().phase(PhaseKind::kEvaluate);
    require(run->session->evaluate(evaluate->samples,
                                   [&](const BatchBuffers& into) { return data.read(0, 0, evaluate->samples, into); }));
    EXPECT_EQ(run->session->arena_peak_bytes(), evaluate->arena_bytes);
    EXPECT_EQ(Probe(*run->session).first_changed_byte(evaluate->arena_bytes), -1);

    for (int64_t i = 0; i < kSteps; ++i) run->step(data, i * kBatch, kBatch);
    EXPECT_EQ(run->session->arena_peak_bytes(), run->plan().arena_bytes);
    EXPECT_EQ(Probe(*run->session).first_changed_byte(run->plan().arena_bytes), -1);
    EXPECT_NE(Probe(*run->session).first_changed_byte(run->plan().persistent_bytes), -1);
  }
}

// Returns whether all these bytes of the arena still have the pattern.
bool untouched(const std::byte* begin, Bytes bytes) {
  return std::all_of(begin, begin + bytes, [](std::byte b) { return b == Probe::kPattern; });
}

bool shares_a_place(const PhasePlan& phase, ValueId id, const std::vector<ValueId>& others) {
  const Bytes begin = phase.values[static_cast<size_t>(id)].offset, end = begin + phase.graph.value(id).bytes();
  return std::any_of(others.begin(), others.end(), [&](ValueId other) {
    const Bytes at = phase.values[static_cast<size_t>(other)].offset;
    return at < end && begin < at + phase.graph.value(other).bytes();
  });
}

// Finds plans that give a value more bytes than its kernel writes. All other checks would accept them.
TEST_P(Golden, EveryNodeWritesTheLastElementOfEachOfItsOutputs) {
  if (options().device == "gpu") GTEST_SKIP() << "the op harness looks for it there";
  RunOptions cut = options();
  cut.forced->micro = 3;
  cut.per_micro_batch_norm = true;
  cut.validates(kBatch);
  const auto run = run_of(golden(name() + ".keras"), cut);
  ColumnSource data = golden_data(name(), run->open.model);
  int checked = 0;
  Probe(*run->session).watch([&](const PhasePlan& phase, size_t n, bool done, std::byte* arena) {
    const Node& node = phase.graph.nodes[n];
    for (ValueId id : node.outputs) {
      if (shares_a_place(phase, id, node.inputs)) continue;  // in-place: the node still has to read the old contents
      const Value& value = phase.graph.value(id);
      std::byte* begin = arena + phase.values[static_cast<size_t>(id)].offset;
      const Bytes element = size_of(value.type.dtype);
      if (!done) {
        std::memset(begin, static_cast<int>(Probe::kPattern), static_cast<size_t>(value.bytes()));
        continue;
      }
      ++checked;
      EXPECT_FALSE(untouched(begin + value.bytes() - element, element))
          << to_text(phase.name) << ": '" << value.name << "' of node " << n << " (" << node.op << ")";
    }
  });
  run->step(data, 0, kBatch);
  require(run->session->evaluate(run->plan().phase(PhaseKind::kEvaluate)->samples, [&](const BatchBuffers& into) {
    return data.read(0, 0, run->plan().phase(PhaseKind::kEvaluate)->samples, into);
  }));
  EXPECT_GT(checked, 10);
}

INSTANTIATE_TEST_SUITE_P(Models, Golden,
                         ::testing::Combine(::testing::ValuesIn(kModels), ::testing::ValuesIn(devices())),
                         [](const auto& which) { return std::get<0>(which.param) + ("_" + std::get<1>(which.param)); });

// A file of Keras 3.0.0 with optimizer state continues training with the same numbers on every device.
TEST(Golden, AFileOfTheOldestKerasTrainsAlikeOnEveryDevice) {
  std::vector<std::vector<double>> losses;
  for (const std::string& device : devices()) {
    RunOptions options;
    options.device = device;
    options.batch_size = 8;
    const auto run = run_of(golden("oldest.keras"), options);
    const ColumnSource data = golden_data("oldest", run->open.model);
    EXPECT_GT(run->state.iteration, 0);
    losses.emplace_back();
    for (int64_t i = 0; i < 2; ++i) losses.back().push_back(run->step(data, i * 8, 8));
    EXPECT_EQ(run->session->arena_peak_bytes(), run->plan().arena_bytes);
  }
  for (const auto& list : losses) EXPECT_LE(relative_difference(list, losses.back()), kLoss);
}

}  // namespace
}  // namespace plimsoll::engine::testing
