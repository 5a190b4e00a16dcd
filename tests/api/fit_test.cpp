// Tests training through the C++ interface: arrays and sources give the same weights, callbacks can change the run, and
// runs resume.
#include <atomic>
#include <fstream>
#include <map>
#include <thread>

#include "api/open_backend.h"
#include "device/calibration.h"
#include "plimsoll/version.h"
#include "tests/api/support.h"

namespace plimsoll::engine::testing {
namespace {

constexpr int64_t kSamples = 22;  // five batches of 4 and one of 2

plimsoll::Description two_inputs(const plimsoll::Optimizer& optimizer = optimizers::Adam(0.01)) {
  const Tensor image = layers::Input({6, 6, 1}, {.name = "image"}), age = layers::Input({2}, {.name = "age"});
  const Tensor seen = layers::Flatten()(layers::Conv2D(4, 3, {.activation = "relu"})(image));
  const Tensor both = layers::Concatenate()({seen, layers::Dense(3, {.activation = "relu"})(age)});
  const Tensor price = layers::Dense(1, {.name = "price"})(both);
  const Tensor kind = layers::Dense(kClasses, {.activation = "softmax", .name = "kind"})(both);
  const auto model = require(functional({image, age}, {price, kind}, "two"));
  return require(model.compile({.optimizer = optimizer,
                                .loss = {{"price", Loss(losses::MeanSquaredError())},
                                         {"kind", Loss(losses::SparseCategoricalCrossentropy())}}}));
}

struct TwoInputs {
  Array image = plimsoll::random_uniform(Dims{kSamples, 6, 6, 1}, 1),
        age = plimsoll::random_uniform(Dims{kSamples, 2}, 2);
  Array price = plimsoll::random_uniform(Dims{kSamples, 1}, 3),
        kind = plimsoll::random_integers(kClasses, Dims{kSamples}, 4);

  Batch rows(int64_t first, int64_t count) const {
    return {.x = {{"age", age.rows(first, count)}, {"image", image.rows(first, count)}},
            .y = {price.rows(first, count), kind.rows(first, count)}};
  }
  Data data() const { return Data::arrays({{"image", image}, {"age", age}}, {{"kind", kind}, {"price", price}}); }
};

// A source that yields batches in order, without a known length.
class Rows final : public DataSource {
 public:
  explicit Rows(const TwoInputs& all) : all_(all) {}
  Result<void> begin_epoch(int64_t epoch) override {
    epochs.push_back(epoch);
    at_ = 0;
    return {};
  }
  Result<bool> next(Batch& batch) override {
    if (at_ >= kSamples) return false;
    const int64_t count = std::min(kSmallBatch, kSamples - at_);
    batch = all_.rows(at_, count);
    at_ += count;
    return true;
  }
  std::vector<int64_t> epochs;

 private:
  const TwoInputs& all_;
  int64_t at_ = 0;
};

using Weights = std::map<std::string, std::vector<float>>;

Weights weights_of(const plimsoll::Model& model) {
  Weights all;
  for (const WeightInfo& info : model.weights()) all[info.name] = floats_of(require(model.weight(info.name)));
  return all;
}

void expect_same(const Weights& got, const Weights& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (const auto& [name, values] : want)
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(got.at(name)[i], values[i], on_gpu() ? 1e-4 : 0) << what << ": " << name << " " << i;
}

TEST(Fit, ArraysASourceAndAFunctionGiveTheSameWeights) {
  const TwoInputs all;
  const auto make = [] { return require(plimsoll::Model::create(two_inputs(), small_options())); };
  plimsoll::Model by_arrays = make(), by_source = make(), by_function = make(), by_step = make();
  const History history = require(by_arrays.fit(all.data(), {.epochs = 3, .shuffle = false}));
  EXPECT_EQ(history.steps, 18);
  ASSERT_EQ(history.epochs.size(), 3U);
  EXPECT_LT(history.epochs[2].loss(), history.epochs[0].loss());
  EXPECT_TRUE(history.epochs[0].find("kind_loss"));
  Rows rows(all);
  require(by_source.fit(Data::from(rows), {.epochs = 3}));
  EXPECT_EQ(rows.epochs, (std::vector<int64_t>{0, 1, 2}));
  int64_t at = 0, epoch = 0;
  require(by_function.fit(Data::from([&](int64_t now, Batch& batch) -> Result<bool> {
                            if (now != epoch) at = 0;
                            epoch = now;
                            if (at >= kSamples) return false;
                            batch = all.rows(at, std::min(kSmallBatch, kSamples - at));
                            at += kSmallBatch;
                            return true;
                          }),
                          {.epochs = 3}));
  for (int i = 0; i < 3; ++i)
    for (int64_t first = 0; first < kSamples; first += kSmallBatch)
      require(by_step.step(all.rows(first, std::min(kSmallBatch, kSamples - first))));
  const Weights wanted = weights_of(by_step);
  expect_same(weights_of(by_arrays), wanted, "arrays");
  expect_same(weights_of(by_source), wanted, "source");
  expect_same(weights_of(by_function), wanted, "function");
  EXPECT_EQ(by_arrays.iterations(), 18);
  EXPECT_EQ(by_arrays.arena_peak_bytes(), by_arrays.plan().arena_bytes);
  EXPECT_NEAR(require(by_arrays.evaluate(all.data())).loss(), require(by_source.evaluate(Data::from(rows))).loss(),
              on_gpu() ? 1e-4 : 1e-6);
}

// With SGD and without tf32 the two differ by the order of float32 additions alone; Adam divides tiny gradients by
// their own size, which would show their rounding.
TEST(Fit, AccumulationOverBatchesOfASourceIsTheLargeBatch) {
  const TwoInputs all;
  const auto model = two_inputs(optimizers::SGD(0.05));
  plimsoll::Model whole =
      require(plimsoll::Model::create(model, {.batch_size = 2 * kSmallBatch, .tf32 = false, .threads = 1}));
  plimsoll::Model pieces = require(plimsoll::Model::create(
      model, {.batch_size = kSmallBatch, .gradient_accumulation_steps = 2, .tf32 = false, .threads = 1}));
  require(whole.fit(all.data(), {.epochs = 2, .shuffle = false}));
  Rows rows(all);
  const History history = require(pieces.fit(Data::from(rows), {.epochs = 2}));
  EXPECT_EQ(history.steps, 6);
  const Weights wanted = weights_of(whole);
  for (const auto& [name, values] : weights_of(pieces))
    for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], wanted.at(name)[i], 2e-5) << name;
}

// Each step is large and uses one sample, so the final weights depend on the order of the samples.
TEST(Fit, AShuffleIsANewOrderThatTheSeedDecides) {
  const TwoInputs all;
  const auto trained = [&](bool shuffle, uint64_t seed) {
    plimsoll::Model model =
        require(plimsoll::Model::create(two_inputs(), {.batch_size = 1, .threads = 1, .seed = seed}));
    plimsoll::Model same_start = require(plimsoll::Model::create(two_inputs(), {.batch_size = 1, .threads = 1}));
    for (const WeightInfo& info : model.weights()) {
      const Array start = require(same_start.weight(info.name));
      require(model.set_weight(info.name, start));
    }
    require(model.fit(all.data(), {.epochs = 1, .shuffle = shuffle}));
    return weights_of(model);
  };
  EXPECT_NE(trained(true, 1), trained(false, 1));
  if (!on_gpu()) {
    EXPECT_EQ(trained(true, 1), trained(true, 1));
  }
  EXPECT_NE(trained(true, 1), trained(true, 2));
}

TEST(Fit, CallbacksLookChangeTheRateAndStop) {
  const TwoInputs all;
  plimsoll::Model model = require(plimsoll::Model::create(two_inputs(), small_options()));
  std::vector<double> losses, rates;
  const auto watch = std::make_shared<callbacks::Lambda>([&](Training& training, const Logs& logs) -> Result<void> {
    losses.push_back(logs.loss());
    rates.push_back(training.learning_rate());
    EXPECT_EQ(training.steps(), static_cast<int64_t>(losses.size()));
    EXPECT_EQ(training.model().iterations(), training.steps());
    PLIMSOLL_TRY(training.set_learning_rate(training.learning_rate() / 2));
    if (losses.size() == 8) training.stop();
    return {};
  });
  const History history = require(model.fit(all.data(), {.epochs = 5, .shuffle = false, .callbacks = {watch}}));
  EXPECT_TRUE(history.stopped);
  EXPECT_EQ(history.steps, 8);
  EXPECT_EQ(history.epochs.size(), 2U);
  ASSERT_EQ(rates.size(), 8U);
  for (size_t i = 0; i < rates.size(); ++i) EXPECT_NEAR(rates[i], 0.01 / std::pow(2, i), 1e-9) << i;
  EXPECT_NEAR(require(model.learning_rate()), 0.01 / 256, 1e-9);
  // The same computation by hand.
  plimsoll::Model other = require(plimsoll::Model::create(two_inputs(), small_options()));
  for (int64_t i = 0; i < 8; ++i) {
    const int64_t first = i % 6 * kSmallBatch;
    const Logs logs = require(other.step(all.rows(first, std::min(kSmallBatch, kSamples - first))));
    expect_same_loss(losses[static_cast<size_t>(i)], logs.loss());
    require(other.set_learning_rate(require(other.learning_rate()) / 2));
  }
  expect_same(weights_of(model), weights_of(other), "by hand");
}

TEST(Fit, ErrorsOfCallbacksAndSourcesEndIt) {
  const TwoInputs all;
  plimsoll::Model model = require(plimsoll::Model::create(two_inputs(), small_options()));
  const auto breaks = std::make_shared<callbacks::Lambda>([](Training& training, const Logs&) -> Result<void> {
    if (training.steps() == 3) return fail(ErrorCode::kUsage, "enough of this");
    return {};
  });
  expect_error(model.fit(all.data(), {.epochs = 2, .callbacks = {breaks}}), ErrorCode::kUsage, {"enough of this"});
  EXPECT_EQ(model.iterations(), 3);
  const auto source = [&](int64_t, Batch& batch) -> Result<bool> {
    if (model.iterations() >= 5) return fail(ErrorCode::kBadDataFile, "the camera is gone");
    batch = all.rows(0, 2);
    return true;
  };
  const auto counts = std::make_shared<callbacks::Lambda>([](Training&, const Logs&) -> Result<void> { return {}; });
  expect_error(model.fit(Data::from(source), {.callbacks = {counts}}), ErrorCode::kBadDataFile, {"the camera is gone"});
  EXPECT_EQ(model.iterations(), 5);
  const auto inside = std::make_shared<callbacks::Lambda>([&](Training& training, const Logs&) -> Result<void> {
    expect_error(training.model().step(all.rows(0, 1)), ErrorCode::kUsage, {"step() inside a callback of fit()"});
    expect_error(training.model().fit(all.data()), ErrorCode::kUsage, {"fit() inside a callback of fit()"});
    expect_error(training.model().evaluate(all.data()), ErrorCode::kUsage, {"evaluate() inside a callback of fit()"});
    expect_error(training.model().predict(all.data()), ErrorCode::kUsage, {"predict() inside a callback of fit()"});
    expect_error(training.set_learning_rate(NAN), ErrorCode::kUsage, {"a learning rate is"});
    expect_error(training.set_learning_rate(-1), ErrorCode::kUsage, {"a learning rate is"});
    EXPECT_TRUE(training.model().weight("price/kernel"));
    return {};
  });
  EXPECT_TRUE(model.fit(all.data(), {.callbacks = {inside}}));
  const auto throws = std::make_shared<callbacks::Lambda>(
      [](Training&, const Logs&) -> Result<void> { throw std::runtime_error("thrown by a callback"); });
  const auto thrown = model.fit(all.data(), {.callbacks = {throws}});
  ASSERT_FALSE(thrown);
  EXPECT_NE(to_text(thrown.error()).find("thrown by a callback"), std::string::npos) << to_text(thrown.error());
  EXPECT_TRUE(model.step(all.rows(0, kSmallBatch)));
}

TEST(Fit, OptionsThatMakeNoSenseAreNamed) {
  const TwoInputs all;
  plimsoll::Model model = require(plimsoll::Model::create(two_inputs(), small_options()));
  Rows rows(all);
  const auto refused = [&](const plimsoll::FitOptions& options, const std::vector<std::string>& words) {
    expect_error(model.fit(all.data(), options), ErrorCode::kUsage, words);
  };
  refused({.epochs = 0}, {"FitOptions::epochs"});
  refused({.steps_per_epoch = -1}, {"FitOptions::steps_per_epoch"});
  refused({.validation_split = 1}, {"FitOptions::validation_split"});
  refused({.validation_split = NAN}, {"FitOptions::validation_split"});
  refused({.validation = all.data(), .validation_split = 0.5}, {"only one of them"});
  refused({.callbacks = {nullptr}}, {"FitOptions::callbacks"});
  refused({.early_stopping = plimsoll::EarlyStopping{}}, {"val_loss", "FitOptions::validation"});
  refused({.early_stopping = plimsoll::EarlyStopping{.monitor = "los"}}, {"'los'", "'loss'"});
  refused({.reduce_lr_on_plateau = plimsoll::ReduceLROnPlateau{.monitor = "loss", .factor = 2}}, {"factor"});
  refused({.save_best = plimsoll::SaveBest{.path = "x.h5", .monitor = "loss"}}, {"x.h5", ".keras"});
  refused({.resume = true}, {"FitOptions::checkpoint"});
  refused({.checkpoint_every = -1}, {"FitOptions::checkpoint_every"});
  refused({.keep_checkpoints = 0}, {"FitOptions::keep_checkpoints"});
  expect_error(model.fit(Data::from(rows), {.validation_split = 0.5}), ErrorCode::kUsage, {"needs arrays"});
  expect_error(model.fit(Data::from(std::function<Result<bool>(int64_t, Batch&)>())), ErrorCode::kUsage, {"empty"});
  expect_error(model.evaluate(Data::from([](int64_t, Batch&) -> Result<bool> { return false; })), ErrorCode::kDataEmpty,
               {"no batch"});
  EXPECT_EQ(model.iterations(), 0);
}

TEST(Fit, ValidatesAndStopsEarly) {
  const TwoInputs all;
  plimsoll::Model model = require(plimsoll::Model::create(two_inputs(), small_options()));
  const History split = require(model.fit(all.data(), {.epochs = 1, .validation_split = 0.3}));
  EXPECT_TRUE(split.epochs[0].find("val_loss"));
  EXPECT_EQ(split.steps, 4);  // 15 of 22 samples
  const History early =
      require(model.fit(all.data(), {.epochs = 50,
                                     .validation = all.data(),
                                     .callbacks = {std::make_shared<callbacks::LearningRateScheduler>(
                                         [](int64_t epoch, double) { return epoch < 2 ? 0.001 : 0.0; })},
                                     .early_stopping = plimsoll::EarlyStopping{.monitor = "val_loss", .patience = 2}}));
  EXPECT_TRUE(early.stopped);
  EXPECT_EQ(early.epochs.size(), 4U);
}

// For both kinds of data: a run that is interrupted and resumed gives the same weights as an uninterrupted run.
TEST(Fit, ResumesToTheSameWeights) {
  const TwoInputs all;
  Rows rows(all);
  for (const bool source : {false, true}) {
    const TemporaryFolder folder;
    const Data data = source ? Data::from(rows) : all.data();
    plimsoll::Model whole = require(plimsoll::Model::create(two_inputs(), small_options()));
    require(whole.fit(data, {.epochs = 3}));
    std::atomic<bool> stop = false;
    const auto stops = std::make_shared<callbacks::Lambda>([&](Training& training, const Logs&) -> Result<void> {
      stop = training.steps() == 8;
      return {};
    });
    plimsoll::Model first = require(plimsoll::Model::create(two_inputs(), small_options()));
    const History history =
        require(first.fit(data, {.epochs = 3, .callbacks = {stops}, .checkpoint = folder.path(), .stop = &stop}));
    EXPECT_TRUE(history.interrupted);
    EXPECT_EQ(history.steps, 8);
    plimsoll::Model second = require(plimsoll::Model::create(two_inputs(), small_options()));
    expect_error(second.fit(data, {.epochs = 3, .checkpoint = folder.path()}), ErrorCode::kCheckpointInUse,
                 {"FitOptions::resume"});
    const History rest = require(second.fit(data, {.epochs = 3, .checkpoint = folder.path(), .resume = true}));
    EXPECT_EQ(rest.steps, 10);
    expect_same(weights_of(second), weights_of(whole), source ? "source" : "arrays");
  }
}

TEST(Checkpoint, CarriesAModelOverToAnotherPlan) {
  const TwoInputs all;
  const TemporaryFolder folder;
  const auto described = two_inputs(optimizers::SGD({.learning_rate = 0.05, .momentum = 0.9}));
  plimsoll::Options options = small_options();
  options.tf32 = false;
  plimsoll::Model model = require(plimsoll::Model::create(described, options));
  require(model.fit(all.data(), {.epochs = 2, .shuffle = false}));
  require(model.save_checkpoint(folder / "state"));
  options.micro_batch = 2;
  plimsoll::Model cut = require(plimsoll::Model::create(described, options));
  require(cut.load_checkpoint(folder / "state"));
  EXPECT_EQ(cut.iterations(), model.iterations());
  expect_same(weights_of(cut), weights_of(model), "loaded");
  const double loss = require(model.step(all.rows(0, kSmallBatch))).loss();
  EXPECT_NEAR(require(cut.step(all.rows(0, kSmallBatch))).loss(), loss, 1e-5);
  const Weights wanted = weights_of(model);
  for (const auto& [name, values] : weights_of(cut))  // equal only if the optimizer's state was restored too
    for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], wanted.at(name)[i], 1e-5) << name;
  plimsoll::Model other = small_trained();
  expect_error(other.load_checkpoint(folder / "state"), ErrorCode::kBadCheckpoint, {"another model"});
  expect_error(other.load_checkpoint(folder / "nosuch"), ErrorCode::kFileUnreadable, {"nosuch"});
  {
    std::ofstream damaged(folder / "state", std::ios::in | std::ios::out | std::ios::binary);
    damaged.seekp(-3, std::ios::end);
    damaged.put('x');
  }
  const Weights before = weights_of(cut);
  expect_error(cut.load_checkpoint(folder / "state"), ErrorCode::kBadCheckpoint, {"state"});
  expect_same(weights_of(cut), before, "kept");
}

TEST(Weights, AreReadAndSetByName) {
  plimsoll::Model model = small_trained();
  const auto list = model.weights();
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0].name, "dense/kernel");
  EXPECT_EQ(list[0].shape, (Dims{4, kClasses}));
  EXPECT_TRUE(list[0].trainable);
  const Samples samples;
  const std::vector<double> bias = {1, 2, 3};
  const Array zeros = require(Array::zeros({4, kClasses}));
  require(model.set_weight("dense/kernel", zeros));
  require(model.set_weight("dense/bias", bias));
  EXPECT_EQ(floats_of(require(model.weight("dense/bias"))), (std::vector<float>{1, 2, 3}));
  const auto predicted = require(model.predict(samples.data()));
  const double sum = std::exp(1) + std::exp(2) + std::exp(3);
  EXPECT_NEAR(floats_of(predicted.at(0))[1], std::exp(2) / sum, 1e-6);
  expect_error(model.weight("dense/kernal"), ErrorCode::kUsage, {"did you mean 'dense/kernel'"});
  expect_error(model.set_weight("nosuch", bias), ErrorCode::kUsage, {"no weight 'nosuch'"});
  expect_error(model.set_weight("dense/kernel", bias), ErrorCode::kDataShape, {"(4, 3)", "(3,)"});
  const std::vector<float> bad = {1, NAN, 2};
  expect_error(model.set_weight("dense/bias", bad), ErrorCode::kDataNotFinite, {"element 1 is nan"});
  expect_error(model.set_weight("dense/bias", {}), ErrorCode::kDataShape, {"no array"});
  EXPECT_EQ(floats_of(require(model.weight("dense/bias"))), (std::vector<float>{1, 2, 3}));
}

TEST(Predict, OfManySizesAndBatchByBatch) {
  plimsoll::Model model = small_trained();
  const Samples many(11);
  const auto all = require(model.predict(many.data())).at(0);
  EXPECT_EQ(all.shape(), (Dims{11, kClasses}));
  std::vector<float> gathered;
  require(model.predict(many.data(), [&](size_t output, const ArrayView& rows) -> Result<void> {
    EXPECT_EQ(output, 0U);
    const auto* values = static_cast<const float*>(rows.data());
    gathered.insert(gathered.end(), values, values + rows.elements());
    return {};
  }));
  EXPECT_EQ(gathered, floats_of(all));
  int64_t at = 0;
  const auto by_source = require(model.predict(Data::from([&](int64_t, Batch& batch) -> Result<bool> {
    if (at >= 11) return false;
    batch = {.x = many.x.rows(at, 5)};
    at += 5;
    return true;
  })));
  const auto got = floats_of(by_source.at(0)), want = floats_of(all);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-6);
  expect_error(
      model.predict(many.data(), [](size_t, const ArrayView&) { return fail(ErrorCode::kWriteFailed, "no disk"); }),
      ErrorCode::kWriteFailed, {"no disk"});
}

TEST(SampleWeights, CountAsInALoopOverSamples) {
  plimsoll::Options options = small_options();
  options.sample_weights = true;
  plimsoll::Model weighted = require(plimsoll::Model::create(small_model(), options));
  plimsoll::Model plain = small_trained();
  const Samples samples;
  Batch batch = samples.batch();
  expect_same_loss(require(weighted.evaluate(samples.data())).loss(), require(plain.evaluate(samples.data())).loss());
  const std::vector<float> first = {2, 0, 0, 0}, bad = {1, NAN, 1, 1};
  batch.sample_weight = first;
  const double one = require(plain.evaluate(Data::arrays(samples.x.rows(0, 1), samples.labels.rows(0, 1)))).loss();
  EXPECT_NEAR(require(weighted.step(batch)).loss(), 2 * one / kSmallBatch, 1e-6);
  batch.sample_weight = bad;
  expect_error(weighted.step(batch), ErrorCode::kDataNotFinite, {"Batch::sample_weight"});
}

// Several models, each on its own thread.
TEST(Threads, ModelsTrainSideBySide) {
  const TwoInputs all;
  const auto train = [&] {
    plimsoll::Model model = require(plimsoll::Model::create(two_inputs(), small_options()));
    require(model.fit(all.data(), {.epochs = 4}));
    return weights_of(model);
  };
  const Weights wanted = train();
  std::vector<Weights> got(4);
  std::vector<std::thread> threads;
  for (Weights& one : got) threads.emplace_back([&] { one = train(); });
  for (std::thread& thread : threads) thread.join();
  for (const Weights& one : got) expect_same(one, wanted, "thread");
  plimsoll::Model model = require(plimsoll::Model::create(two_inputs(), small_options()));
  std::thread other([&] { require(model.fit(all.data(), {.epochs = 4})); });  // the model was made on another thread
  other.join();
  expect_same(weights_of(model), wanted, "handed over");
}

TEST(PlanData, SaysWhereTheBytesGo) {
  const plimsoll::Plan plan = require(plimsoll::plan(small_model(), {.batch_size = 64, .budget = "8GiB"}));
  EXPECT_TRUE(plan.fits);
  EXPECT_EQ(plan.peak_bytes, plan.arena_bytes + plan.overhead_bytes + plan.data_bytes);
  int64_t sum = 0;
  for (const PlanCategory& category : plan.categories) sum += category.bytes;
  EXPECT_EQ(sum, plan.arena_bytes);
  EXPECT_EQ(plan.parameters, 4 * kClasses + kClasses);
  EXPECT_EQ(plan.layers.size(), 2U);
  EXPECT_TRUE(plan.text.starts_with("Fits: ")) << plan.text;
  EXPECT_NE(plan.json.find("plimsoll.plan/1"), std::string::npos);
  const plimsoll::Plan small = require(plimsoll::plan(small_model(), {.batch_size = 64, .budget = "1MiB"}));
  EXPECT_FALSE(small.fits);
  ASSERT_FALSE(small.remedies.empty());
  EXPECT_EQ(small.remedies[0].find("--"), std::string::npos) << small.remedies[0];
  EXPECT_TRUE(require(plimsoll::plan(small_model(), {.device = "rtx-4090-24g"})).fits);
  expect_error(plimsoll::Model::create(small_model(), {.device = "rtx-4090-24g"}), ErrorCode::kLibraryMissing,
               {"is not in this machine"});
}

// A calibration changes the seconds of a plan.
TEST(PlanData, ReadsACalibration) {
  const auto digest_in = [](const std::string& file) {
    const plimsoll::Options options{.budget = "8GiB", .device = "cpu", .calibration = file, .threads = 2};
    const auto plan = require(plimsoll::plan(small_model(), options));
    return nlohmann::json::parse(plan.json)["calibration"];
  };
  EXPECT_TRUE(digest_in("none").is_null());
  RunOptions options;
  options.device = "cpu";
  options.threads = 2;
  const auto backend = require(open_backend(options));
  Calibration calibration(backend->device().info(), PLIMSOLL_VERSION);
  calibration.set_rates({1e9, 1e9});
  const std::string path = ::testing::TempDir() + "times.txt";
  std::ofstream(path) << calibration.text();
  EXPECT_EQ(digest_in(path), calibration.digest());
  expect_error(plimsoll::plan(small_model(), {.calibration = path + ".gone"}), ErrorCode::kFileUnreadable,
               {"times.txt.gone"});
}

}  // namespace
}  // namespace plimsoll::engine::testing
