// Dynamic loss scaling: an overflow skips the update and halves the scale. Tested on the host in float32, float64 and
// mixed_float16, and on a GPU in mixed_float16.
#include "execute/probe.h"
#include "tests/support/memory_data.h"

namespace plimsoll::engine::testing {
namespace {

constexpr int64_t kBatch = 8, kGrowth = 4;

// Large inputs make large gradients, near the largest number of the dtype.
plimsoll::Description network() {
  return require(sequential(
      {layers::Input({6}), layers::Rescaling(64), layers::Dense(16, {.activation = "relu"}), layers::Dense(3)},
      "network"));
}

nlohmann::json scaled(const nlohmann::json& inner, double initial, int64_t growth_steps = kGrowth) {
  return {{"module", "keras.optimizers"},
          {"class_name", "LossScaleOptimizer"},
          {"config", {{"inner_optimizer", inner}, {"initial_scale", initial}, {"dynamic_growth_steps", growth_steps}}}};
}

nlohmann::json halving_rate() {
  nlohmann::json sgd = nlohmann::json::parse(optimizers::SGD(0).to_json());
  sgd["config"]["learning_rate"] = {
      {"module", "keras.optimizers.schedules"},
      {"class_name", "ExponentialDecay"},
      {"config", {{"initial_learning_rate", 1e-6}, {"decay_steps", 1}, {"decay_rate", 0.5}, {"staircase", true}}}};
  return sgd;
}

int64_t integer(const ModelRun& run, const std::string& name) {
  const HostView values = require(run.session->look());
  return *values[name].as<int64_t>();
}

std::vector<std::string> updated_values(const ModelRun& run) {
  std::vector<std::string> names;
  for (const Weight& weight : run.open.model.weights()) names.push_back(weight.name);
  for (const std::string& state : state_values(run.open.model)) names.push_back(state);
  return names;
}

using Values = std::map<std::string, std::vector<double>>;
Values look(const ModelRun& run) {
  Values values;
  for (const std::string& name : updated_values(run)) values[name] = run.values(name);
  return values;
}

class LossScaling : public ::testing::TestWithParam<std::tuple<std::string, std::optional<int64_t>>> {
 protected:
  static bool in_half() { return std::get<0>(GetParam()) == "cpu_half" || device() == "gpu"; }
  static std::string device() { return std::get<0>(GetParam()) == "cpu_half" ? "cpu" : std::get<0>(GetParam()); }

  // With this scale the gradients of this network overflow in several steps.
  static double huge() { return in_half() ? 0x1p16 : device() == "reference" ? 0x1p1023 : 0x1p127; }

  static RunOptions options() {
    RunOptions options;
    options.device = device();
    options.batch_size = kBatch;
    options.forced->micro = std::get<1>(GetParam());
    if (in_half()) options.precision = "mixed_float16";
    return options;
  }

  static std::unique_ptr<ModelRun> start(const nlohmann::json& optimizer) {
    return run_of(network(), optimizers::Custom(optimizer["class_name"].get<std::string>(), optimizer["config"].dump()),
                  losses::MeanSquaredError(), options());
  }
};

TEST_P(LossScaling, AnOverflowKeepsWeightsAndMomentsAndHalvesTheScale) {
  const auto run = start(scaled(nlohmann::json::parse(optimizers::Adam(0.001).to_json()), huge()));
  MemoryData data(run->open.model, kBatch, 5);
  Probe(*run->session).fill_pattern();
  EXPECT_EQ(run->values(kLossScale), std::vector<double>{huge()});
  double scale = huge();
  int64_t skipped = 0, steps = 0;
  for (int step = 0; step < 40; ++step) {
    const Values before = look(*run);
    const double loss = run->step(data.source(), 0, kBatch);
    EXPECT_TRUE(std::isfinite(loss)) << step;
    const bool overflowed = integer(*run, kSkippedUpdates) > skipped;
    if (step == 0) {
      EXPECT_TRUE(overflowed);
    }
    const Values after = look(*run);
    for (const auto& [name, values] : after) {
      if (overflowed)
        EXPECT_EQ(values, before.at(name)) << name << " in step " << step;
      else
        EXPECT_NE(values, before.at(name)) << name << " in step " << step;
      for (const double v : values) ASSERT_TRUE(std::isfinite(v)) << name << " in step " << step;
    }
    skipped += overflowed ? 1 : 0;
    const bool grows = !overflowed && steps == kGrowth - 1;
    scale *= overflowed ? 0.5 : grows ? 2 : 1;
    steps = overflowed || grows ? 0 : steps + 1;
    EXPECT_EQ(integer(*run, kSkippedUpdates), skipped) << step;
    EXPECT_EQ(integer(*run, kLossScaleSteps), steps) << step;
    EXPECT_EQ(run->values(kLossScale), std::vector<double>{scale}) << step;
  }
  EXPECT_GT(skipped, 3);  // at the start, and after the scale has grown again
  EXPECT_GT(40 - skipped, 15);
  EXPECT_EQ(run->session->arena_peak_bytes(), run->plan().arena_bytes);
  EXPECT_EQ(Probe(*run->session).first_changed_byte(run->plan().arena_bytes), -1);
}

// Drives a device that runs ahead as fit() does: the sums of a window are collected after the next window is enqueued.
// So the last overflow is not known when the next learning rate is set.
void run_ahead(ModelRun& run, BatchSource& data, int64_t windows) {
  for (int64_t window = 0; window < windows; ++window) {
    require(run.whole->step(kBatch, [&](const BatchRequest& piece, const BatchBuffers& into) {
      return data.read(0, piece.first, piece.count, into);
    }));
    if (window > 0) (void)require(run.session->collect());
  }
}

// All windows have the same batch, and a window whose update is skipped changes nothing. So the result is that of a run
// without overflows and with as many updates. A scale that is a power of two changes no bit. One wrong learning rate
// would be half or twice the right one, and would change weights by more than 1e-4 of their size.
TEST_P(LossScaling, ASchedulePassesOverUpdatesThatWerePrevented) {
  constexpr int64_t kWindows = 24;
  const auto run = start(scaled(halving_rate(), huge())), calm = start(scaled(halving_rate(), 1, 1000));
  MemoryData data(run->open.model, kBatch, 5);
  run_ahead(*run, data.source(), kWindows);
  const int64_t skipped = integer(*run, kSkippedUpdates);
  EXPECT_GT(skipped, 3);
  EXPECT_LT(skipped, kWindows - 5);
  const Values before = look(*calm);
  for (int64_t update = 0; update < kWindows - skipped; ++update) calm->step(data.source(), 0, kBatch);
  EXPECT_EQ(integer(*calm, kSkippedUpdates), 0);
  for (const auto& [name, values] : look(*calm)) {
    EXPECT_GT(relative_difference(before.at(name), values), 1e-4) << name;
    EXPECT_LE(relative_difference(run->values(name), values), 1e-6) << name;
  }
}

TEST_P(LossScaling, WhatWasSavedGoesOn) {
  const auto run = start(scaled(nlohmann::json::parse(optimizers::Adam(0.001).to_json()), huge()));
  MemoryData data(run->open.model, kBatch, 5);
  while (run->state.iteration < 40 && run->state.iteration - integer(*run, kSkippedUpdates) < 3)
    run->step(data.source(), 0, kBatch);
  TemporaryFolder folder;
  require(save_model(*run->session, nullptr, run->open.config_text, run->state, folder / "saved.keras"));
  const auto again = run_of(folder / "saved.keras", options());
  EXPECT_EQ(again->state.iteration, 3);  // skipped updates do not count
  EXPECT_EQ(integer(*again, kSkippedUpdates), 0);
  EXPECT_EQ(integer(*again, kLossScaleSteps), integer(*run, kLossScaleSteps));
  EXPECT_EQ(again->values(kLossScale), run->values(kLossScale));
  EXPECT_EQ(look(*again), look(*run));
  for (int step = 0; step < 3; ++step)
    EXPECT_NEAR(again->step(data.source(), 0, kBatch), run->step(data.source(), 0, kBatch), 1e-6) << step;
  for (const auto& [name, values] : look(*run))
    EXPECT_LE(relative_difference(again->values(name), values), 1e-6) << name;
}

std::vector<std::string> devices_and_half() {
  std::vector<std::string> list = devices();
  if (std::find(list.begin(), list.end(), "cpu") != list.end()) list.emplace_back("cpu_half");
  return list;
}

INSTANTIATE_TEST_SUITE_P(Devices, LossScaling,
                         ::testing::Combine(::testing::ValuesIn(devices_and_half()),
                                            ::testing::Values(std::optional<int64_t>{}, std::optional<int64_t>{3})),
                         [](const auto& which) {
                           return std::get<0>(which.param) + (std::get<1>(which.param) ? "_cut" : "_whole");
                         });

// A plain optimizer that is wrapped in a loss scale, as under mixed_float16, trains as it does without one: a scale of
// 2^15 changes no bit of numbers that neither overflow nor underflow. tests/keras/test_optimizers.py loads the file
// that this test writes in Keras.
TEST(SavedForKeras, APlainOptimizerThatGotALossScale) {
  RunOptions options;
  options.batch_size = 4;
  options.overrides.scale_loss = true;
  const auto run = run_of(golden("mlp.keras"), options);
  const ColumnSource data = golden_data("mlp", run->open.model);
  for (int64_t i = 0; i < 5; ++i) run->step(data, i * 4, 4);
  TemporaryFolder folder;
  const char* wanted = std::getenv("PLIMSOLL_SAVED_FOR_KERAS");
  const std::string path = wanted != nullptr ? wanted : folder / "scaled.keras";
  require(save_model(*run->session, &*run->open.archive, run->open.config_text, run->state, path));
  const KerasArchive saved = require(open_keras(path));
  EXPECT_EQ(saved.config.at("compile_config").at("optimizer").at("class_name"), "LossScaleOptimizer");
  const auto inner = optimizer_variables(*saved.weights, kInnerOptimizerVars);
  EXPECT_EQ(optimizer_variables(*saved.weights, kOptimizerVars).size(), inner.size() + 4);
  for (size_t i = 1; i < inner.size(); ++i) {
    std::vector<double> values(static_cast<size_t>(inner[i].type.shape.elements()));
    require(saved.weights->read_into(inner[i].path, {DType::kFloat64, inner[i].type.shape}, values.data()));
    EXPECT_LE(relative_difference(values, read_npz(golden("mlp_expected.npz"), "state/" + std::to_string(i))), 3e-5)
        << inner[i].path;
  }
}

// Copies weights and moments.
void copy_state(const ModelRun& from, ModelRun& to) {
  const HostView values = require(from.session->look());
  for (const std::string& name : updated_values(from)) {
    require(to.session->store(name, [&](const TensorView& into) -> Status {
      std::memcpy(into.data, values[name].data, static_cast<size_t>(into.type.bytes()));
      return {};
    }));
  }
}

// Returns what a step added to each moment of the last layer: its gradients times a constant. The gradients of that
// layer come directly from the loss. In all golden models, a moment decays by 0.9.
std::vector<double> gradients(const ModelRun& run, const Values& before) {
  std::vector<double> list;
  const std::string first = state_values(run.open.model).front(), state = first.substr(first.rfind('/'));
  for (const Weight& weight : run.open.model.weights()) {
    if (weight.layer != run.open.model.weights().back().layer) continue;
    const std::vector<double> now = run.values(weight.name + state), &then = before.at(weight.name + state);
    for (size_t i = 0; i < now.size(); ++i) list.push_back(now[i] - 0.9 * then[i]);
  }
  return list;
}

// float16 has 11 bits. Adam turns the rounding error of a gradient near zero into a whole step, and a relu may switch,
// so two training runs diverge. (In Keras's own float32, changing the initial weights of the cnn by 2^-12 changes the
// losses of five steps by up to 7.5e-3.) So each float32 step here starts from the weights and moments of the float16
// run. With that, Keras's own mixed_float16 on these models and data is within 4.2e-4 of float32's loss and
// within 1.6e-3 of the last layer's largest gradient.
class MixedFloat16 : public ::testing::TestWithParam<std::string> {};

TEST_P(MixedFloat16, StepsAreThoseOfFloat32Rounded) {
  if (GetParam() == "reference") GTEST_SKIP() << "the reference computes in float64";
  constexpr double kLoss = 1e-3, kGradient = 4e-3;
  for (const auto& [name, float32_layer] : {std::pair{"cnn", ""}, {"resnet", ""}, {"mlp", ""}, {"cnn", "dense*"}}) {
    RunOptions options;
    options.device = GetParam();
    options.batch_size = 4;
    options.alone = false;
    const std::string file = golden(std::string(name) + ".keras");
    const auto full = run_of(file, options);
    if (*float32_layer != 0) options.overrides.float32_layers = {float32_layer};
    options.precision = "mixed_float16";
    options.overrides.scale_loss = true;
    const auto half = run_of(file, options);
    const ColumnSource data = golden_data(name, half->open.model);
    for (int64_t i = 0; i < 5; ++i) {
      copy_state(*half, *full);
      const Values before = look(*full);
      const double want = full->step(data, i * 4, 4), away = std::abs(half->step(data, i * 4, 4) / want - 1);
      EXPECT_LE(away, kLoss) << name << ", step " << i;
      EXPECT_GT(away, 0) << name << ", step " << i << ": was it float16?";
      EXPECT_LE(relative_difference(gradients(*half, before), gradients(*full, before)), kGradient)
          << name << ", step " << i;
    }
    EXPECT_EQ(integer(*half, kSkippedUpdates), 0) << name;
    EXPECT_EQ(integer(*half, kLossScaleSteps), 5) << name;
    EXPECT_EQ(half->values(kLossScale), std::vector<double>{32768}) << name;
    EXPECT_EQ(half->session->arena_peak_bytes(), half->plan().arena_bytes) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, MixedFloat16, ::testing::ValuesIn(devices()),
                         [](const auto& which) { return which.param; });

}  // namespace
}  // namespace plimsoll::engine::testing
