// The C++ interface checks what it is given: every fault is an error that names it, and none is a wrong number.
#include <cmath>
#include <limits>

#include "tests/support/run.h"

namespace plimsoll::engine::testing {
namespace {

constexpr int64_t kBatch = 4;
constexpr int32_t kClasses = 3;

Sequential small_model(const std::string& dtype = "float32") {
  return Sequential({Input({2, 2, 1}, dtype), Flatten(), Dense(kClasses, {.activation = "softmax"})});
}

// A trainer takes the GPU where there is one. There two runs of the same differ by rounding.
bool on_gpu() {
  return devices().back() == "gpu";
}
void expect_same_loss(double got, double want, const std::string& what = "") {
  EXPECT_NEAR(got, want, on_gpu() ? 1e-5 * std::abs(want) : 0) << what;
}

Trainer small_trainer(const TrainerOptions& options = {.batch_size = kBatch, .threads = 1}) {
  return require(Trainer::create(small_model(), SGD(0.1), SparseCategoricalCrossentropy(), options));
}

struct Samples {
  std::vector<float> x;
  std::vector<int32_t> labels;

  explicit Samples(int64_t count = kBatch)
      : x(random_uniform({count, 2, 2, 1}, 5)), labels(random_integers(kClasses, count, 6)) {}
  Batch batch() const { return {x, labels, {}, static_cast<int64_t>(labels.size())}; }
};

// An error of this code whose text says all of this, and speaks of no flag.
template <typename T>
void expect_error(const Result<T>& result, ErrorCode code, const std::vector<std::string>& words) {
  ASSERT_FALSE(result.has_value());
  const std::string text = to_text(result.error());
  EXPECT_EQ(code_name(result.error().code), code_name(code)) << text;
  for (const std::string& word : words) EXPECT_NE(text.find(word), std::string::npos) << word << " in:\n" << text;
  EXPECT_EQ(text.find("--"), std::string::npos) << text;
}

// The next step gives what it would have given if nothing had been refused before.
void expect_untouched(Trainer& trainer) {
  Trainer other = small_trainer();
  const Samples samples;
  expect_same_loss(require(trainer.step(samples.batch())), require(other.step(samples.batch())));
}

TEST(TrainerBatch, ADtypeOtherThanTheInputsIsRefused) {
  for (const char* dtype : {"uint8", "bool", "int8", "int32", "int64", "float64"}) {
    Trainer trainer =
        require(Trainer::create(small_model(dtype), SGD(0.1), SparseCategoricalCrossentropy(), {.batch_size = kBatch}));
    const Samples samples;
    expect_error(trainer.step({samples.x.data(), samples.labels.data(), nullptr, kBatch}), ErrorCode::kDataShape,
                 {"Batch::x is float32", dtype});
  }
}

// The program that wrote 3 MiB into 0.75 MiB.
TEST(TrainerBatch, FloatsForAUint8InputAreRefusedBeforeAnythingIsCopied) {
  const Sequential model({Input({64, 64, 3}, "uint8"), Conv2D(8, {3, 3}), Flatten(), Dense(10)});
  Trainer trainer = require(Trainer::create(model, Adam(), SparseCategoricalCrossentropy(true), {.batch_size = 64}));
  const auto x = random_uniform({64, 64, 64, 3}, 0);
  const auto labels = random_integers(10, 64, 1);
  expect_error(trainer.step({x.data(), labels.data(), nullptr, 64}), ErrorCode::kDataShape,
               {"Batch::x is float32, the model takes uint8", "Input(shape, \"float32\")"});
}

template <typename T>
double loss_of(const std::string& dtype, const std::vector<T>& x, const std::vector<int32_t>& labels) {
  Trainer trainer =
      require(Trainer::create(small_model(dtype), SGD(0.1), SparseCategoricalCrossentropy(), {.batch_size = kBatch}));
  require(trainer.step({x, labels, {}, kBatch}));
  return require(trainer.step({x, labels, {}, kBatch}));
}

TEST(TrainerBatch, EachDtypeIsReadAsWhatItIs) {
  const std::vector<int32_t> labels = {0, 2, 1, 2};
  std::vector<float> floats(kBatch * 4);
  for (size_t i = 0; i < floats.size(); ++i) floats[i] = static_cast<float>(i % 5);
  const auto expect_same = [&]<typename T>(const std::string& dtype, T) {
    expect_same_loss(loss_of(dtype, std::vector<T>(floats.begin(), floats.end()), labels),
                     loss_of("float32", floats, labels), dtype);
  };
  expect_same("uint8", uint8_t{});
  expect_same("int8", int8_t{});
  expect_same("uint16", uint16_t{});
  expect_same("int16", int16_t{});
  expect_same("int32", int32_t{});
  expect_same("int64", int64_t{});
  expect_same("float64", double{});
}

TEST(TrainerBatch, LabelsOfAnyDtypeAreTheSameLabels) {
  const Samples samples;
  const auto loss = [&](const ArrayView& labels) {
    Trainer trainer = small_trainer();
    return require(trainer.step({samples.x, labels, {}, kBatch}));
  };
  const double wanted = loss(samples.labels);
  const auto& given = samples.labels;
  expect_same_loss(loss(std::vector<uint8_t>(given.begin(), given.end())), wanted, "uint8_t");
  expect_same_loss(loss(std::vector<int64_t>(given.begin(), given.end())), wanted, "int64_t");
  expect_same_loss(loss(std::vector<float>(given.begin(), given.end())), wanted, "float");
}

TEST(TrainerBatch, AnUnknownDtypeIsRefused) {
  Trainer trainer = small_trainer();
  const Samples samples;
  expect_error(trainer.step({{samples.x.data(), "complex64", 16}, samples.labels, {}, kBatch}), ErrorCode::kDataShape,
               {"Batch::x", "complex64"});
}

TEST(TrainerBatch, MoreOrFewerElementsThanTheSamplesHaveAreRefused) {
  Trainer trainer = small_trainer();
  Samples samples;
  samples.x.pop_back();
  expect_error(trainer.step({samples.x, samples.labels, {}, kBatch}), ErrorCode::kDataShape,
               {"Batch::x has 15 elements", "4 samples of (2, 2, 1) have 16"});
  samples.x.resize(20);
  expect_error(trainer.step({samples.x, samples.labels, {}, kBatch}), ErrorCode::kDataShape, {"20 elements"});
  samples.x.resize(16);
  samples.labels.pop_back();
  expect_error(trainer.step({samples.x, samples.labels, {}, kBatch}), ErrorCode::kDataShape,
               {"Batch::labels has 3 elements"});
  expect_untouched(trainer);
}

TEST(TrainerBatch, ABatchHasFromOneToBatchSizeSamples) {
  Trainer trainer = small_trainer();
  const Samples many(2 * kBatch);
  for (const int64_t count : {int64_t{-1}, int64_t{0}, kBatch + 1, 2 * kBatch, std::numeric_limits<int64_t>::max(),
                              std::numeric_limits<int64_t>::min()})
    expect_error(trainer.step({many.x.data(), many.labels.data(), nullptr, count}), ErrorCode::kDataShape,
                 {"Batch::samples is " + std::to_string(count), "from 1 to 4", "TrainerOptions::batch_size"});
  expect_untouched(trainer);
}

TEST(TrainerBatch, WhatIsNotGivenIsNamed) {
  Trainer trainer = small_trainer();
  const Samples samples;
  expect_error(trainer.step({nullptr, samples.labels, {}, kBatch}), ErrorCode::kDataShape, {"Batch::x is not given"});
  expect_error(trainer.step({samples.x, {}, {}, kBatch}), ErrorCode::kDataShape, {"Batch::labels is not given"});
  expect_error(trainer.step({samples.x, {}, samples.x, kBatch}), ErrorCode::kDataShape, {"Batch::labels is not given"});
  expect_error(trainer.step({samples.x, samples.labels, samples.x, kBatch}), ErrorCode::kDataShape, {"not both"});
  expect_untouched(trainer);
  Trainer regression =
      require(Trainer::create(Sequential({Input({2}), Dense(1)}), SGD(), MeanSquaredError(), {.batch_size = kBatch}));
  const std::vector<float> x(8), y(4);
  expect_error(regression.step({x, samples.labels, {}, kBatch}), ErrorCode::kDataShape,
               {"Batch::targets is not given"});
  expect_error(regression.step({x, {}, samples.labels, kBatch}), ErrorCode::kDataShape,
               {"Batch::targets is int32, the model takes float32"});
  EXPECT_TRUE(regression.step({x, {}, y, kBatch}));
}

TEST(TrainerBatch, LabelsOutsideTheClassesAreRefused) {
  Trainer trainer = small_trainer();
  for (const int32_t label : {-1, kClasses, 7}) {
    Samples samples;
    samples.labels[2] = label;
    expect_error(trainer.step(samples.batch()), ErrorCode::kLabelOutOfRange,
                 {"Batch::labels: sample 2 has the label " + std::to_string(label), "3 classes"});
  }
  const Samples samples;
  expect_error(trainer.step({samples.x, std::vector<int64_t>{0, 1, int64_t{1} << 40, 2}, {}, kBatch}),
               ErrorCode::kLabelOutOfRange, {"sample 2"});
  expect_error(trainer.step({samples.x, std::vector<float>{0, 1, 0.5f, 2}, {}, kBatch}), ErrorCode::kLabelOutOfRange,
               {"the label 0.5"});
  expect_untouched(trainer);
}

TEST(TrainerBatch, WhatIsNotFiniteIsRefused) {
  Trainer trainer = small_trainer();
  for (const float value : {std::nanf(""), INFINITY, -INFINITY}) {
    Samples samples;
    samples.x[9] = value;
    expect_error(trainer.step(samples.batch()), ErrorCode::kDataNotFinite,
                 {"Batch::x: sample 2 holds", "at (0, 1, 0)"});
  }
  expect_untouched(trainer);
  Trainer regression =
      require(Trainer::create(Sequential({Input({2}), Dense(1)}), SGD(), MeanSquaredError(), {.batch_size = kBatch}));
  expect_error(regression.step({std::vector<float>(8), {}, std::vector<float>{0, 0, 0, NAN}, kBatch}),
               ErrorCode::kDataNotFinite, {"Batch::targets: sample 3 holds nan"});
}

TEST(TrainerBatch, ALossThatIsNotFiniteIsAnError) {
  Trainer trainer = require(
      Trainer::create(Sequential({Input({2}), Dense(1)}), SGD(1e30), MeanSquaredError(), {.batch_size = kBatch}));
  const std::vector<float> x = {1, 2, 3, 4, 5, 6, 7, 8}, y = {1, 1, 1, 1};
  Result<double> result = 0.0;
  for (int i = 0; i < 4 && result; ++i) result = trainer.step({x, {}, y, kBatch});
  expect_error(result, ErrorCode::kDataNotFinite, {"diverged", "learning rate"});
}

TEST(TrainerBatch, BatchesOfBadArraysAreRefusedByStep) {
  const Samples samples;
  std::vector<float> odd = samples.x;
  odd.push_back(0);
  for (const auto& list : {batches(samples.x, samples.labels, 0), batches(samples.x, samples.labels, -3),
                           batches(odd, samples.labels, 2), batches(samples.x, {}, 2), batches({}, {}, 2)}) {
    ASSERT_EQ(list.size(), 1U);
    Trainer trainer = small_trainer();
    expect_error(trainer.step(list[0]), ErrorCode::kDataShape, {"Batch::"});
  }
  EXPECT_EQ(batches(samples.x, samples.labels, 3).size(), 2U);
  EXPECT_EQ(batches(samples.x, samples.labels, 3)[1].samples, 1);
  EXPECT_EQ(batches(samples.x, samples.labels, std::numeric_limits<int64_t>::max()).size(), 1U);
  EXPECT_TRUE(random_uniform({-1, 4}, 0).empty());
  EXPECT_TRUE(random_uniform({int64_t{1} << 40, int64_t{1} << 40}, 0).empty());
  EXPECT_TRUE(random_integers(0, 4, 0).empty());
  EXPECT_TRUE(random_integers(3, -4, 0).empty());
}

TrainerOptions in_windows() {
  return {.batch_size = kBatch, .gradient_accumulation_steps = 2, .threads = 1};
}

TEST(TrainerOrder, ApplyAndAccumulateNeedBegin) {
  Trainer trainer = small_trainer();
  const Samples samples;
  expect_error(trainer.apply(), ErrorCode::kUsage, {"apply() without begin()"});
  expect_error(trainer.accumulate(samples.batch()), ErrorCode::kUsage, {"accumulate() without begin()"});
  require(trainer.step(samples.batch()));
  expect_error(trainer.apply(), ErrorCode::kUsage, {"apply() without begin()"});
  expect_error(trainer.accumulate(samples.batch()), ErrorCode::kUsage, {"accumulate() without begin()"});
}

TEST(TrainerOrder, AWindowHasFromOneToTheEffectiveBatch) {
  Trainer trainer = small_trainer(in_windows());
  for (const int64_t count : {int64_t{-7}, int64_t{0}, 2 * kBatch + 1, std::numeric_limits<int64_t>::max()})
    expect_error(trainer.begin(count), ErrorCode::kUsage,
                 {"begin(" + std::to_string(count) + ")", "from 1 to 8", "gradient_accumulation_steps 2"});
  expect_error(trainer.apply(), ErrorCode::kUsage, {"apply() without begin()"});
}

TEST(TrainerOrder, AWindowEndsBeforeTheNextBegins) {
  const TemporaryFolder folder;
  Trainer trainer = small_trainer(in_windows());
  const Samples samples;
  require(trainer.begin(2 * kBatch));
  expect_error(trainer.begin(kBatch), ErrorCode::kUsage, {"a window of 8 samples is under way, 0 of them"});
  expect_error(trainer.apply(), ErrorCode::kUsage, {"begun for 8 samples, 0 were given"});
  require(trainer.accumulate(samples.batch()));
  expect_error(trainer.begin(kBatch), ErrorCode::kUsage, {"4 of them were given"});
  expect_error(trainer.step(samples.batch()), ErrorCode::kUsage, {"step() inside a window"});
  expect_error(trainer.save(folder / "m.keras"), ErrorCode::kUsage, {"save() inside a window"});
  expect_error(trainer.apply(), ErrorCode::kUsage, {"begun for 8 samples, 4 were given"});
  Samples bad;
  bad.labels[0] = 99;
  expect_error(trainer.accumulate(bad.batch()), ErrorCode::kLabelOutOfRange, {"label 99"});
  require(trainer.accumulate(samples.batch()));
  expect_error(trainer.accumulate(samples.batch()), ErrorCode::kUsage, {"begun for 8 samples, this batch makes 12"});
  const double loss = require(trainer.apply());
  // The refused calls changed nothing: the same window without them has the same loss.
  Trainer other = small_trainer(in_windows());
  require(other.begin(2 * kBatch));
  for (int i = 0; i < 2; ++i) require(other.accumulate(samples.batch()));
  expect_same_loss(loss, require(other.apply()));
  EXPECT_TRUE(trainer.save(folder / "m.keras"));
}

TEST(TrainerOrder, PiecesOfAWindowNeedATrainerPlannedForThem) {
  Trainer trainer = small_trainer();
  const Samples half(kBatch / 2);
  require(trainer.begin(kBatch));
  expect_error(trainer.accumulate(half.batch()), ErrorCode::kUsage, {"gradient_accumulation_steps above 1"});
}

TEST(TrainerOrder, ATrainerThatWasMovedFromSaysSo) {
  Trainer trainer = small_trainer();
  const Trainer taken = std::move(trainer);
  const Samples samples;
  expect_error(trainer.step(samples.batch()), ErrorCode::kUsage, {"moved from"});  // NOLINT: that is the test
  expect_error(trainer.save("m.keras"), ErrorCode::kUsage, {"moved from"});
  EXPECT_EQ(trainer.plan(), "");
  EXPECT_EQ(trainer.arena_peak_bytes(), 0);
}

Result<Trainer> create(const TrainerOptions& options) {
  return Trainer::create(small_model(), SGD(0.1), SparseCategoricalCrossentropy(), options);
}

TEST(TrainerOptions, CountsOutOfRangeAreNamed) {
  expect_error(create({.batch_size = -3}), ErrorCode::kUsage, {"TrainerOptions::batch_size", "got -3"});
  expect_error(create({.batch_size = 0}), ErrorCode::kUsage, {"TrainerOptions::batch_size", "got 0"});
  expect_error(create({.gradient_accumulation_steps = 0}), ErrorCode::kUsage, {"::gradient_accumulation_steps"});
  expect_error(create({.micro_batch = -1}), ErrorCode::kUsage, {"TrainerOptions::micro_batch"});
  expect_error(create({.batch_size = 4, .micro_batch = 5}), ErrorCode::kUsage, {"micro_batch 5 is larger"});
  expect_error(create({.threads = std::numeric_limits<int>::max()}), ErrorCode::kUsage,
               {"options.threads = 2147483647", "at most 65536"});
  expect_error(create({.threads = -3}), ErrorCode::kUsage, {"TrainerOptions::threads", "got -3"});
  expect_error(create({.batch_size = int64_t{1} << 40, .gradient_accumulation_steps = int64_t{1} << 40}),
               ErrorCode::kUsage, {"too many samples to count"});
  EXPECT_FALSE(create({.batch_size = int64_t{1} << 60}));
  expect_error(create({.budget = "2 gigs"}), ErrorCode::kUsage, {"TrainerOptions::budget: '2 gigs' is not a size"});
  expect_error(create({.budget = "-1"}), ErrorCode::kUsage, {"TrainerOptions::budget"});
  expect_error(create({.budget = "0"}), ErrorCode::kUsage, {"TrainerOptions::budget must be above 0"});
}

TEST(TrainerOptions, WhatDoesNotFitAdvisesOptions) {
  expect_error(create({.batch_size = 64, .budget = "8MiB"}), ErrorCode::kDoesNotFit,
               {"try: options.budget = \"", on_gpu() ? "overhead" : "held by the program before"});
  const Sequential coupled({Input({8}), Dense(4), BatchNormalization(), Dense(kClasses)});
  const auto loss = SparseCategoricalCrossentropy(true);
  expect_error(Trainer::create(coupled, SGD(), loss, {.batch_size = 64, .budget = "8MiB"}), ErrorCode::kDoesNotFit,
               {"options.budget"});
  expect_error(Trainer::create(coupled, SGD(), loss, {.batch_size = 64, .micro_batch = 8}),
               ErrorCode::kBatchNormForbidsMicroBatch,
               {"options.micro_batch = 8 would change", "leave options.micro_batch out"});
}

TEST(TrainerOptions, WhatTheProgramHeldBeforeHasALineOfItsOwn) {
  if (on_gpu()) GTEST_SKIP() << "the host's bytes are no part of a GPU's budget";
  const std::vector<char> ballast(48 << 20, 1);
  const Trainer trainer = small_trainer();
  const std::string plan = trainer.plan();
  const size_t held = plan.find("held by the program before"), data = plan.find("data buffers");
  ASSERT_NE(held, std::string::npos) << plan;
  ASSERT_NE(data, std::string::npos);
  EXPECT_EQ(plan.substr(data, plan.find('\n', data) - data).find("MiB"), std::string::npos) << plan;
  const auto bytes = [&](size_t at) {
    std::string digits;
    for (at = plan.find_first_of("0123456789", at); plan[at] == ',' || std::isdigit(plan[at]) != 0; ++at)
      if (plan[at] != ',') digits += plan[at];
    return std::stoll(digits);
  };
  EXPECT_GE(bytes(held), 48 << 20) << plan;
  EXPECT_EQ(plan.find("--"), std::string::npos);
  EXPECT_EQ(ballast.back(), 1);
}

TEST(TrainerModel, AConfigurationThatIsNotJsonIsAnError) {
  const auto loss = SparseCategoricalCrossentropy();
  expect_error(Trainer::create(Sequential({Input({4}), Rescaling(std::nan("")), Dense(3)}), SGD(), loss),
               ErrorCode::kBadConfig, {"layer 1 (Rescaling)", "not finite"});
  for (const char* bad : {"", "{", "nul", "[1]", "\"text\"", "{\"a\": }"})
    expect_error(Trainer::create(Sequential({Input({4}), LayerSpec{"LeakyReLU", bad}, Dense(3)}), SGD(), loss),
                 ErrorCode::kBadConfig, {"layer 1 (LeakyReLU)", "not a JSON object"});
  expect_error(Trainer::create(small_model(), OptimizerSpec{"{"}, loss), ErrorCode::kBadConfig, {"the optimizer"});
  expect_error(Trainer::create(small_model(), SGD(), LossSpec{"3"}), ErrorCode::kBadConfig, {"the loss"});
}

TEST(TrainerModel, WhatAModelCannotBeIsAnErrorAndNothingThrows) {
  const auto loss = SparseCategoricalCrossentropy();
  const auto expect_refused = [&](const std::vector<LayerSpec>& layers, const std::string& what) {
    const auto result = Trainer::create(Sequential(layers), SGD(), loss, {.batch_size = 2});
    ASSERT_FALSE(result) << what;
    EXPECT_EQ(to_text(result.error()).find("--"), std::string::npos) << to_text(result.error());
    EXPECT_NE(result.error().code, ErrorCode::kInternal) << to_text(result.error());
  };
  expect_refused({}, "no layers");
  expect_refused({Dense(3)}, "no input");
  expect_refused({Input({-4}), Dense(3)}, "negative dimension");
  expect_refused({Input({0}), Dense(3)}, "no elements");
  expect_refused({Input({4}, "text"), Dense(3)}, "no dtype");
  expect_refused({Input({4}, "\xff\xfe"), Dense(3)}, "no UTF-8");
  expect_refused({Input({4}), LayerSpec{"\xff", "{}"}}, "a class that is no UTF-8");
  expect_refused({Input({4}), Dense(-3)}, "negative units");
  expect_refused({Input({4}), Dense(3, {.activation = "nosuch"})}, "no activation");
  expect_refused({Input({4}), Dropout(2)}, "dropout of 2");
  expect_refused({Input({4}), Rescaling(std::nan("")), Dense(3)}, "scale NaN");
  expect_refused({Input({2, 2, 1}), Conv2D(4, {3, 3}), Flatten(), Dense(3)}, "kernel beyond the image");
  expect_refused({LayerSpec{"InputLayer", R"({"batch_shape": [null, null], "dtype": "float32"})"}, Dense(3)}, "None");
  for (const double rate : {std::nan(""), double{INFINITY}})
    expect_error(Trainer::create(small_model(), SGD(rate), loss), ErrorCode::kBadConfig, {"optimizer", "not finite"});
}

TEST(TrainerSave, APathThatCannotBeWrittenIsAnError) {
  const Trainer trainer = small_trainer();
  for (const char* path : {"", "/", "/nosuchfolder/m.keras"}) {
    const auto result = trainer.save(path);
    ASSERT_FALSE(result) << path;
    EXPECT_EQ(to_text(result.error()).find("--"), std::string::npos) << to_text(result.error());
  }
}

}  // namespace
}  // namespace plimsoll::engine::testing
