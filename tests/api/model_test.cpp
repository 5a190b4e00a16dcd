// Tests that the C++ interface checks its arguments: every mistake gives an error that names it, and no mistake gives a
// wrong number.
#include <limits>

#include "tests/api/support.h"

namespace plimsoll::engine::testing {
namespace {

TEST(ModelBatch, WholeNumbersAreDeclaredAsWhatTheyAre) {
  for (const char* dtype : {"uint8", "int8", "int32", "int64"}) {
    plimsoll::Model model = require(plimsoll::Model::create(small_model(dtype), small_options()));
    expect_error(model.step(Samples().batch()), ErrorCode::kDataShape, {"Batch::x is float32, the model takes", dtype});
  }
}

template <typename T>
double loss_of(const std::string& declared, const std::vector<T>& x, const std::vector<int32_t>& labels) {
  plimsoll::Model model = require(plimsoll::Model::create(small_model(declared), small_options()));
  const Batch batch{.x = ArrayView(x, {kSmallBatch, 2, 2, 1}), .y = labels};
  require(model.step(batch));
  return require(model.step(batch)).loss();
}

TEST(ModelBatch, EachDtypeIsReadAsWhatItIs) {
  const std::vector<int32_t> labels = {0, 2, 1, 2};
  std::vector<float> floats(kSmallBatch * 4);
  for (size_t i = 0; i < floats.size(); ++i) floats[i] = static_cast<float>(i % 5);
  const double wanted = loss_of("float32", floats, labels);
  const auto expect_same = [&]<typename T>(const std::string& dtype, T) {
    const std::vector<T> values(floats.begin(), floats.end());
    expect_same_loss(loss_of(dtype, values, labels), wanted, "declared " + dtype);
    expect_same_loss(loss_of("float32", values, labels), wanted, "converted " + dtype);
  };
  expect_same("uint8", uint8_t{});
  expect_same("int8", int8_t{});
  expect_same("uint16", uint16_t{});
  expect_same("int16", int16_t{});
  expect_same("int32", int32_t{});
  expect_same("int64", int64_t{});
  expect_same("float64", double{});
}

TEST(ModelBatch, LabelsOfAnyDtypeAreTheSameLabels) {
  const Samples samples;
  const auto loss = [&](const ArrayView& labels) {
    return require(small_trained().step({.x = samples.x, .y = labels})).loss();
  };
  const double wanted = loss(samples.labels);
  const auto given = require(samples.labels.values<int32_t>());
  const std::vector<uint8_t> bytes(given.begin(), given.end());
  const std::vector<int64_t> whole(given.begin(), given.end());
  const std::vector<float> floats(given.begin(), given.end());
  expect_same_loss(loss(bytes), wanted, "uint8");
  expect_same_loss(loss(whole), wanted, "int64");
  expect_same_loss(loss(floats), wanted, "float");
  expect_same_loss(loss(ArrayView(given, {kSmallBatch, 1})), wanted, "(4, 1)");
}

TEST(ModelBatch, ShapesDtypesAndCountsAreChecked) {
  plimsoll::Model model = small_trained();
  const Samples samples;
  const auto x = floats_of(samples.x);
  const std::vector<int32_t> three = {0, 1, 2}, none;
  const std::vector<float> ones(4, 1), no_pixels;
  const auto step = [&](const ArrayView& view) { return model.step({.x = view, .y = samples.labels}); };
  expect_error(step(ArrayView(x.data(), 16, "complex64", {4, 2, 2, 1})), ErrorCode::kDataShape, {"complex64"});
  expect_error(step(x), ErrorCode::kDataShape, {"(16,)", "(16, 2, 2, 1)", "ArrayView(values, {4, 2, 2, 1})"});
  expect_error(step(ArrayView(x, {4, 1, 4})), ErrorCode::kDataShape, {"(4, 1, 4)", "(4, 2, 2, 1)"});
  expect_error(step(ArrayView(x, {5, 2, 2, 1})), ErrorCode::kDataShape, {"has 20 elements, this one has 16"});
  expect_error(step(ArrayView(x, {3, 2, 2, 1})), ErrorCode::kDataShape, {"has 12 elements, this one has 16"});
  expect_error(step(ArrayView(x, {-4, 2, -2, 1})), ErrorCode::kDataShape, {"(-4, 2, -2, 1)"});
  const int64_t huge = std::numeric_limits<int64_t>::max();
  expect_error(step(ArrayView(x, {huge, huge, 2, 1})), ErrorCode::kDataShape, {"no such number"});
  expect_error(step(ArrayView()), ErrorCode::kDataShape, {"Batch::x is not given"});
  expect_error(model.step({.x = {}, .y = samples.labels}), ErrorCode::kDataShape, {"Batch::x is not given"});
  expect_error(model.step({.x = samples.x}), ErrorCode::kDataShape, {"Batch::y is not given"});
  expect_error(model.step({.x = {samples.x, samples.x}, .y = samples.labels}), ErrorCode::kDataShape,
               {"has 2 arrays, the model takes 1"});
  expect_error(model.step({.x = {{"nosuch", samples.x}}, .y = samples.labels}), ErrorCode::kDataShape,
               {"has no 'nosuch'"});
  expect_error(model.step({.x = samples.x, .y = three}), ErrorCode::kDataShape, {"Batch::y has 3 samples"});
  expect_error(model.step({.x = samples.x, .y = samples.labels, .sample_weight = ones}), ErrorCode::kDataShape,
               {"options.sample_weights = true"});
  expect_error(model.step(Samples(2 * kSmallBatch).batch()), ErrorCode::kDataShape, {"from 1 to 4 samples", "has 8"});
  expect_error(model.step({.x = ArrayView(no_pixels, {0, 2, 2, 1}), .y = none}), ErrorCode::kDataShape, {"Batch::x"});
  expect_untouched(model);
}

TEST(ModelBatch, LabelsOutsideTheClassesAreRefused) {
  plimsoll::Model model = small_trained();
  for (const int32_t label : {-1, kClasses, 7}) {
    Samples samples;
    samples.label(2) = label;
    expect_error(model.step(samples.batch()), ErrorCode::kLabelOutOfRange,
                 {"Batch::y: sample 2 has the label " + std::to_string(label), "3 classes"});
  }
  const Samples samples;
  const std::vector<int64_t> large = {0, 1, int64_t{1} << 40, 2};
  const std::vector<float> halves = {0, 1, 0.5f, 2};
  expect_error(model.step({.x = samples.x, .y = large}), ErrorCode::kLabelOutOfRange, {"sample 2"});
  expect_error(model.step({.x = samples.x, .y = halves}), ErrorCode::kLabelOutOfRange, {"the label 0.5"});
  expect_untouched(model);
}

TEST(ModelBatch, WhatIsNotFiniteIsRefused) {
  plimsoll::Model model = small_trained();
  for (const float value : {std::nanf(""), INFINITY, -INFINITY}) {
    Samples samples;
    samples.pixel(9) = value;
    expect_error(model.step(samples.batch()), ErrorCode::kDataNotFinite, {"Batch::x: sample 2 holds", "at (0, 1, 0)"});
  }
  expect_untouched(model);
  plimsoll::Model regression = require(plimsoll::Model::create(regression_model(), small_options()));
  const std::vector<float> x(8), y = {0, 0, 0, NAN};
  expect_error(regression.step({.x = ArrayView(x, {4, 2}), .y = y}), ErrorCode::kDataNotFinite,
               {"Batch::y: sample 3 holds nan"});
}

TEST(ModelBatch, ALossThatIsNotFiniteIsAnError) {
  plimsoll::Model model = require(plimsoll::Model::create(regression_model(1e30), small_options()));
  const std::vector<float> x = {1, 2, 3, 4, 5, 6, 7, 8}, y = {1, 1, 1, 1};
  Result<Logs> result = Logs();
  for (int i = 0; i < 4 && result; ++i) result = model.step({.x = ArrayView(x, {4, 2}), .y = y});
  expect_error(result, ErrorCode::kDataNotFinite, {"diverged", "learning rate"});
}

plimsoll::Options in_windows() {
  return {.batch_size = kSmallBatch, .gradient_accumulation_steps = 2, .threads = 1};
}

TEST(ModelOrder, ApplyAndAccumulateNeedBegin) {
  plimsoll::Model model = small_trained();
  const Samples samples;
  for (int i = 0; i < 2; ++i) {
    expect_error(model.apply(), ErrorCode::kUsage, {"apply() without begin()"});
    expect_error(model.accumulate(samples.batch()), ErrorCode::kUsage, {"accumulate() without begin()"});
    require(model.step(samples.batch()));
  }
}

TEST(ModelOrder, AWindowHasFromOneToTheEffectiveBatch) {
  plimsoll::Model model = small_trained(in_windows());
  for (const int64_t count : {int64_t{-7}, int64_t{0}, 2 * kSmallBatch + 1, std::numeric_limits<int64_t>::max()})
    expect_error(model.begin(count), ErrorCode::kUsage,
                 {"begin(" + std::to_string(count) + ")", "from 1 to 8", "gradient_accumulation_steps 2"});
  expect_error(model.apply(), ErrorCode::kUsage, {"apply() without begin()"});
}

TEST(ModelOrder, AWindowEndsBeforeTheNextBegins) {
  const TemporaryFolder folder;
  plimsoll::Model model = small_trained(in_windows());
  const Samples samples;
  require(model.begin(2 * kSmallBatch));
  expect_error(model.begin(kSmallBatch), ErrorCode::kUsage, {"a window of 8 samples is in progress, and 0 of them"});
  expect_error(model.apply(), ErrorCode::kUsage, {"begun for 8 samples, 0 were given"});
  require(model.accumulate(samples.batch()));
  expect_error(model.begin(kSmallBatch), ErrorCode::kUsage, {"4 of them were accumulated"});
  expect_error(model.step(samples.batch()), ErrorCode::kUsage, {"step() inside a window"});
  expect_error(model.fit(samples.data()), ErrorCode::kUsage, {"fit() inside a window"});
  expect_error(model.evaluate(samples.data()), ErrorCode::kUsage, {"evaluate() inside a window"});
  expect_error(model.predict(samples.data()), ErrorCode::kUsage, {"predict() inside a window"});
  expect_error(model.save(folder / "m.keras"), ErrorCode::kUsage, {"save() inside a window"});
  expect_error(model.save_checkpoint(folder / "m.state"), ErrorCode::kUsage, {"save_checkpoint() inside a window"});
  expect_error(model.load_checkpoint(folder / "m.state"), ErrorCode::kUsage, {"load_checkpoint() inside a window"});
  expect_error(model.apply(), ErrorCode::kUsage, {"begun for 8 samples, 4 were given"});
  Samples bad;
  bad.label(0) = 99;
  expect_error(model.accumulate(bad.batch()), ErrorCode::kLabelOutOfRange, {"label 99"});
  require(model.accumulate(samples.batch()));
  expect_error(model.accumulate(samples.batch()), ErrorCode::kUsage, {"begun for 8 samples, this batch makes 12"});
  const double loss = require(model.apply()).loss();
  // The refused calls had no effect: the same window without them has the same loss.
  plimsoll::Model other = small_trained(in_windows());
  require(other.begin(2 * kSmallBatch));
  for (int i = 0; i < 2; ++i) require(other.accumulate(samples.batch()));
  expect_same_loss(loss, require(other.apply()).loss());
  EXPECT_TRUE(model.save(folder / "m.keras"));
}

TEST(ModelOrder, PiecesOfAWindowNeedAModelPlannedForThem) {
  plimsoll::Model model = small_trained();
  require(model.begin(kSmallBatch));
  expect_error(model.accumulate(Samples(kSmallBatch / 2).batch()), ErrorCode::kUsage,
               {"options.gradient_accumulation_steps above 1"});
}

TEST(ModelOrder, AModelThatWasMovedFromSaysSo) {
  plimsoll::Model model = small_trained();
  const plimsoll::Model taken = std::move(model);
  const Samples samples;
  expect_error(model.step(samples.batch()), ErrorCode::kUsage, {"moved from"});  // NOLINT: that is the test
  expect_error(model.fit(samples.data()), ErrorCode::kUsage, {"moved from"});
  expect_error(model.evaluate(samples.data()), ErrorCode::kUsage, {"moved from"});
  expect_error(model.predict(samples.data()), ErrorCode::kUsage, {"moved from"});
  expect_error(model.weight("dense/kernel"), ErrorCode::kUsage, {"moved from"});
  expect_error(model.learning_rate(), ErrorCode::kUsage, {"moved from"});
  expect_error(model.save("m.keras"), ErrorCode::kUsage, {"moved from"});
  EXPECT_TRUE(model.weights().empty());
  EXPECT_TRUE(model.input_names().empty());
  EXPECT_EQ(model.plan().text, "");
  EXPECT_EQ(model.arena_peak_bytes(), 0);
  EXPECT_EQ(model.iterations(), 0);
}

Result<plimsoll::Model> create(const plimsoll::Options& options) {
  return plimsoll::Model::create(small_model(), options);
}

TEST(ModelOptions, ValuesOutOfRangeAreNamed) {
  expect_error(create({.batch_size = -3}), ErrorCode::kUsage, {"Options::batch_size", "got -3"});
  expect_error(create({.batch_size = 0}), ErrorCode::kUsage, {"Options::batch_size", "got 0"});
  expect_error(create({.gradient_accumulation_steps = 0}), ErrorCode::kUsage, {"::gradient_accumulation_steps"});
  expect_error(create({.micro_batch = -1}), ErrorCode::kUsage, {"Options::micro_batch"});
  expect_error(create({.batch_size = 4, .micro_batch = 5}), ErrorCode::kUsage, {"micro_batch 5 is larger"});
  expect_error(create({.threads = std::numeric_limits<int>::max()}), ErrorCode::kUsage,
               {"options.threads = 2147483647", "the maximum is 65536 threads"});
  expect_error(create({.threads = -3}), ErrorCode::kUsage, {"Options::threads", "got -3"});
  expect_error(create({.batch_size = int64_t{1} << 40, .gradient_accumulation_steps = int64_t{1} << 40}),
               ErrorCode::kUsage, {"too many samples to count"});
  EXPECT_FALSE(create({.batch_size = int64_t{1} << 60}));
  expect_error(create({.budget = "2 gigs"}), ErrorCode::kUsage, {"Options::budget: '2 gigs' is not a size"});
  expect_error(create({.budget = "-1"}), ErrorCode::kUsage, {"Options::budget"});
  expect_error(create({.budget = "0"}), ErrorCode::kUsage, {"Options::budget must be above 0"});
  expect_error(create({.host_budget = "much"}), ErrorCode::kUsage, {"Options::host_budget"});
  expect_error(create({.device = "gpu:x"}), ErrorCode::kUsage, {"options.device = \"gpu:x\""});
  expect_error(create({.device = "abacus"}), ErrorCode::kUsage, {"abacus"});
  expect_error(create({.precision = "float8"}), ErrorCode::kUsage, {"options.precision = \"float8\""});
  expect_error(create({.forbid = {"levitate"}}), ErrorCode::kUsage, {"unknown lever 'levitate'"});
  expect_error(create({.forbid = {"recompute"}, .allow = {"recompute"}}), ErrorCode::kUsage, {"cannot be both"});
  expect_error(create({.batchnorm = "sometimes"}), ErrorCode::kUsage, {"Options::batchnorm", "sometimes"});
  expect_error(create({.input_shape = {0}}), ErrorCode::kUsage, {"Options::input_shape"});
  expect_error(create({.inference_batch_size = -2}), ErrorCode::kUsage, {"Options::inference_batch_size"});
}

TEST(ModelOptions, WhatDoesNotFitAdvisesOptions) {
  expect_error(create({.batch_size = 64, .budget = "8MiB"}), ErrorCode::kDoesNotFit,
               {"try: options.budget = \"", on_gpu() ? "overhead" : "held by the program before"});
  auto coupled = require(
      sequential({layers::Input({8}), layers::Dense(4), layers::BatchNormalization(), layers::Dense(kClasses)}));
  coupled = require(coupled.compile(
      {.optimizer = optimizers::SGD(), .loss = losses::SparseCategoricalCrossentropy({.from_logits = true})}));
  expect_error(plimsoll::Model::create(coupled, {.batch_size = 64, .budget = "8MiB"}), ErrorCode::kDoesNotFit,
               {"options.budget"});
  expect_error(plimsoll::Model::create(coupled, {.batch_size = 64, .micro_batch = 8}),
               ErrorCode::kBatchNormForbidsMicroBatch,
               {"options.micro_batch = 8 would change", "remove options.micro_batch"});
  EXPECT_TRUE(plimsoll::Model::create(coupled, {.batch_size = 64, .micro_batch = 8, .batchnorm = "per-micro-batch"}));
}

TEST(ModelOptions, WhatTheProgramHeldBeforeHasALineOfItsOwn) {
  if (on_gpu()) GTEST_SKIP() << "the host's bytes are no part of a GPU's budget";
  const std::vector<char> ballast(48 << 20, 1);
  const plimsoll::Plan plan = small_trained().plan();
  const size_t held = plan.text.find("held by the program before");
  ASSERT_NE(held, std::string::npos) << plan.text;
  EXPECT_GE(plan.data_bytes, 48 << 20) << plan.text;
  EXPECT_EQ(plan.text.find("--"), std::string::npos) << plan.text;
  EXPECT_EQ(ballast.back(), 1);
}

TEST(ModelOptions, AModelWithoutALossPredictsAndDoesNotTrain) {
  const auto bare = require(sequential({layers::Input({2, 2, 1}), layers::Flatten(), layers::Dense(kClasses)}));
  expect_error(plimsoll::Model::create(bare), ErrorCode::kNotCompiled, {});
  plimsoll::Model model = require(plimsoll::Model::create(bare, {.batch_size = kSmallBatch, .trains = false}));
  const Samples samples;
  EXPECT_EQ(require(model.predict(samples.data())).at(0).shape(), (Dims{kSmallBatch, kClasses}));
  expect_error(model.step(samples.batch()), ErrorCode::kUsage, {"options.trains = true"});
  expect_error(model.fit(samples.data()), ErrorCode::kUsage, {"options.trains = true"});
  expect_error(model.begin(1), ErrorCode::kUsage, {"options.trains = true"});
  expect_error(model.evaluate(samples.data()), ErrorCode::kUsage, {"no loss to evaluate"});
}

TEST(ModelSave, APathThatCannotBeWrittenIsAnError) {
  const plimsoll::Model model = small_trained();
  for (const char* path : {"", "/", "/nosuchfolder/m.keras", "model.h5"}) {
    for (const auto& result : {model.save(path), model.save_checkpoint(path)}) {
      if (std::string(path) == "model.h5" && result) continue;  // a checkpoint may have any name
      ASSERT_FALSE(result) << path;
      EXPECT_EQ(to_text(result.error()).find("--"), std::string::npos) << to_text(result.error());
    }
  }
  std::remove("model.h5");
}

}  // namespace
}  // namespace plimsoll::engine::testing
