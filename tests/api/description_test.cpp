// Tests that the engine can open every model that the C++ interface describes, and that every mistake gives an error
// that names it.
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <thread>

#include "api/described.h"
#include "model/model.h"
#include "tests/support/described_cases.h"

namespace cases {
namespace {

using plimsoll::CompileOptions;
using plimsoll::ErrorCode;
using plimsoll::require;
using plimsoll::engine::described;
using plimsoll::engine::ModelOptions;

std::string golden(const std::string& name) {
  return std::string(PLIMSOLL_SOURCE_DIR) + "/tests/golden/" + name;
}

// Expects an error with this code whose text contains all these words and no flag.
template <typename T>
void expect_error(const Result<T>& result, ErrorCode code, const std::vector<std::string>& words) {
  ASSERT_FALSE(result.has_value()) << "no error with " << (words.empty() ? "" : words[0]);
  const std::string text = to_text(result.error());
  EXPECT_EQ(code_name(result.error().code), code_name(code)) << text;
  for (const std::string& word : words) EXPECT_NE(text.find(word), std::string::npos) << word << " in:\n" << text;
  EXPECT_EQ(text.find("--"), std::string::npos) << text;
}

plimsoll::engine::Model opened(const Description& description) {
  ModelOptions options;
  options.needs_loss = options.needs_training = described(description).description.compile_config.is_object();
  if (described(description).description.config.dump().find("[null,null,null,3]") != std::string::npos)
    options.input_shape = {8, 8, 3};
  return require(plimsoll::engine::Model::create(described(description).description, options));
}

Description dense_model() {
  return require(sequential({layers::Input({4}), layers::Dense(3, {.name = "a"}), layers::Dense(2)}));
}

TEST(Describe, TheEngineOpensEveryLayer) {
  for (const LayerCase& one : layer_cases()) {
    const auto model = functional(one.inputs, {one.layer(one.inputs)});
    ASSERT_TRUE(model) << one.keras << "\n" << to_text(model.error());
    EXPECT_NO_THROW(opened(*model)) << one.keras;
  }
}

TEST(Describe, TheEngineOpensEveryModel) {
  for (const ModelCase& one : model_cases()) {
    ASSERT_TRUE(one.model) << one.name << "\n" << to_text(one.model.error());
    EXPECT_NO_THROW(opened(*one.model)) << one.name;
    const Description again = require(Description::from_json(one.model->to_json()));
    EXPECT_EQ(again.to_json(), one.model->to_json());
    EXPECT_EQ(again.layer_names(), one.model->layer_names());
  }
}

TEST(Describe, CallsOfOneLayerShareItsWeights) {
  EXPECT_EQ(opened(require(shared_layer())).weights().size(), 2);
  const Tensor x = layers::Input({4});
  const Layer dense = layers::Dense(4), copy = dense;
  EXPECT_EQ(opened(require(functional({x}, {copy(dense(x))}))).weights().size(), 2);
  EXPECT_EQ(opened(require(functional({x}, {layers::Dense(4)(dense(x))}))).weights().size(), 4);
}

TEST(Describe, AutomaticNamesAreCountedPerModelAndAvoidGivenOnes) {
  const std::vector<std::string> names = {"rescaling", "conv2d", "conv2d_1", "global_max_pooling2d",
                                          "dense_1",   "dense"};
  EXPECT_EQ(require(small_sequential()).layer_names(), names);
  const Tensor x = layers::Input({4});
  const Layer a = layers::Dense(4), b = layers::Dense(4);
  for (int model = 0; model < 2; ++model)
    EXPECT_EQ(require(functional({x}, {b(a(x))})).layer_names(), (std::vector<std::string>{"dense", "dense_1"}));
  const auto clash = sequential({layers::Input({4}), layers::Dense(4), layers::Dense(4, {.name = "dense"})});
  EXPECT_EQ(require(clash).layer_names(), (std::vector<std::string>{"dense_1", "dense"}));
}

TEST(Describe, WeightsOfANestedModelAreFoundInItsFile) {
  const Description inner = require(Description::load(golden("cnn.keras")));
  ASSERT_FALSE(described(inner).file.empty());
  const Tensor x = layers::Input({10, 10, 2});
  const Tensor y = layers::Dense(2)(layers::model(inner, {.name = "backbone", .trainable = false})(x));
  const Description middle = require(functional({x}, {y}, "middle"));
  const Description outer = require(sequential({layers::Input({10, 10, 2}), middle, layers::Dense(2)}));
  ASSERT_EQ(described(outer).nested.size(), 1);
  const std::string prefix = described(outer).nested[0].prefix;
  EXPECT_EQ(described(outer).nested[0].file, golden("cnn.keras"));
  EXPECT_EQ(prefix, "layers/functional/layers/sequential/");
  const auto whole = opened(outer), part = opened(inner);
  size_t found = 0;
  for (const auto& weight : whole.weights()) {
    if (!weight.file_path.starts_with(prefix)) continue;
    EXPECT_EQ(weight.file_path.substr(prefix.size()), part.weights()[found].file_path);
    EXPECT_FALSE(weight.trainable) << weight.name;
    ++found;
  }
  EXPECT_EQ(found, part.weights().size());
}

TEST(Describe, AFileIsRememberedAfterChanges) {
  const std::string path = golden("cnn.keras");
  const Description model = require(Description::load(path));
  EXPECT_NE(model.compile_json(), "null");
  EXPECT_EQ(described(require(model.compile({.loss = "mse"}))).file, path);
  EXPECT_EQ(described(require(model.set_trainable("*", false))).file, path);
}

TEST(Describe, BuiltinModelsAreCompiled) {
  const Description model = require(Description::builtin("fashion-cnn"));
  EXPECT_EQ(model.name(), "fashion_cnn");
  EXPECT_NE(model.compile_json().find("SparseCategoricalCrossentropy"), std::string::npos);
  opened(model);
  expect_error(Description::builtin("fashion"), ErrorCode::kUsage, {"'fashion'", "fashion-cnn"});
}

std::vector<std::string> trained(const Description& description) {
  std::vector<std::string> names;
  const auto model = opened(description);
  for (const auto& weight : model.weights())
    if (weight.trainable) names.push_back(weight.name);
  return names;
}

TEST(Describe, SetTrainableFreezesLayersByNameAndPattern) {
  const Description model = require(nested_models());
  const auto count = [&](const char* pattern) { return trained(require(model.set_trainable(pattern, false))).size(); };
  EXPECT_EQ(trained(model).size(), 4);
  EXPECT_EQ(count("backbone"), 2);
  EXPECT_EQ(count("backbone/*"), 2);
  EXPECT_EQ(count("conv"), 2);
  EXPECT_EQ(count("head/classes"), 2);
  EXPECT_EQ(count("*"), 0);
  expect_error(model.set_trainable("backbon", false), ErrorCode::kUsage, {"'backbon'", "backbone", "head/classes"});
  expect_error(model.set_trainable("", false), ErrorCode::kUsage, {"''"});
}

TEST(Describe, ALayerInsideAFrozenModelCanBeTrainedAgain) {
  const Tensor x = layers::Input({4}, {.name = "in"});
  const auto inner = require(
      functional({x}, {layers::Dense(4, {.name = "last"})(layers::Dense(4, {.name = "first"})(x))}, "backbone"));
  const Tensor y = layers::Input({4});
  const Description whole = require(functional({y}, {layers::Dense(1)(layers::model(inner, {.trainable = false})(y))}));
  EXPECT_EQ(trained(whole).size(), 2);
  EXPECT_EQ(trained(require(whole.set_trainable("backbone/last", true))).size(), 4);
  EXPECT_EQ(trained(require(require(whole.set_trainable("*", false)).set_trainable("last", true))).size(), 2);
}

// ---- compile

TEST(Compile, LossesAreGivenOnceOrPerOutputOrByName) {
  const Description model = require(two_inputs_two_outputs());
  const std::vector<CompileOptions> good = {
      {.loss = "mse"},
      {.loss = losses::MeanAbsoluteError(), .loss_weights = {1, 2}},
      {.optimizer = "sgd", .loss = {"mse", "sparse_categorical_crossentropy"}, .metrics = {"mae", "accuracy"}},
      {.optimizer = optimizers::Adam(schedules::CosineDecay(0.1, 10)),
       .loss = {{"price", "mse"}, {"kind", losses::SparseCategoricalCrossentropy()}},
       .loss_weights = {{"price", 0.5}},
       .metrics = {{"kind", {"accuracy", metrics::Custom("AUC")}}},
       .weighted_metrics = {{"price", {"mae"}}}}};
  for (const CompileOptions& options : good) {
    const auto compiled = model.compile(options);
    ASSERT_TRUE(compiled) << to_text(compiled.error());
    opened(*compiled);
  }
}

TEST(Compile, MistakesAreNamed) {
  const Description model = require(two_inputs_two_outputs());
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  expect_error(model.compile({}), ErrorCode::kUsage, {"the loss is missing"});
  expect_error(model.compile({.loss = {"mse", "mse", "mse"}}), ErrorCode::kBadConfig, {"price", "kind"});
  expect_error(model.compile({.loss = {{"prize", "mse"}, {"kind", "mse"}}}), ErrorCode::kBadConfig, {"prize"});
  expect_error(model.compile({.loss = {{"kind", "mse"}, {"kind", "mae"}}}), ErrorCode::kUsage, {"kind", "twice"});
  expect_error(model.compile({.loss = "mse", .loss_weights = {1, nan}}), ErrorCode::kUsage, {"loss_weights", "finite"});
  expect_error(model.compile({.optimizer = optimizers::Adam(inf), .loss = "mse"}), ErrorCode::kUsage,
               {"optimizer.learning_rate", "finite"});
  expect_error(model.compile({.optimizer = optimizers::SGD({.clipnorm = nan}), .loss = "mse"}), ErrorCode::kUsage,
               {"optimizer.clipnorm"});
  expect_error(model.compile({.optimizer = optimizers::SGD({.momentum = 2}), .loss = "mse"}), ErrorCode::kUnsupported,
               {"momentum"});
  expect_error(model.compile({.optimizer = "MultiOptimizer", .loss = "mse"}), ErrorCode::kUnsupported,
               {"MultiOptimizer"});
  expect_error(model.compile({.optimizer = optimizers::Custom("Lion", "{"), .loss = "mse"}), ErrorCode::kUsage,
               {"optimizer"});
  const char* no_name = nullptr;
  expect_error(model.compile({.loss = no_name}), ErrorCode::kUnsupported, {"loss"});
  expect_error(model.compile({.loss = "\xff"}), ErrorCode::kUsage, {"loss", "UTF-8"});
  expect_error(model.compile({.loss = {{"\xff", "mse"}, {"kind", "mse"}}}), ErrorCode::kUsage, {"UTF-8"});
  expect_error(model.compile({.loss = losses::BinaryCrossentropy({.label_smoothing = 2})}), ErrorCode::kBadConfig,
               {"label_smoothing"});
  expect_error(model.compile({.loss = "mse", .metrics = {{"kind", {"acuracy"}}}}), ErrorCode::kUsage,
               {"acuracy", "accuracy"});
  expect_error(model.compile({.loss = "mse", .metrics = {"accuracy"}}), ErrorCode::kBadConfig, {"metrics"});
}

// ---- mistakes in models

TEST(SequentialErrors, NameWhatIsWrong) {
  const Tensor x = layers::Input({4});
  const Layer dense = layers::Dense(4);
  expect_error(sequential({}), ErrorCode::kUsage, {"no layers"});
  expect_error(sequential({x}), ErrorCode::kUsage, {"no layers"});
  expect_error(sequential({x, dense, x}), ErrorCode::kUsage, {"entry 2", "Input"});
  expect_error(sequential({x, dense(x)}), ErrorCode::kUsage, {"entry 1", "Dense"});
  expect_error(sequential({x, dense, dense}), ErrorCode::kUsage, {"twice", "Dense"});
  expect_error(sequential({x, layers::Dense(1, {.name = "a"}), layers::ReLU({.name = "a"})}), ErrorCode::kUsage,
               {"'a'", "ReLU", "Dense"});
  expect_error(sequential({x, dense}, "a/b"), ErrorCode::kUsage, {"'/'"});
  expect_error(sequential({x, dense}, ""), ErrorCode::kUsage, {"empty"});
  EXPECT_TRUE(sequential({dense}));  // the data decide the shape
}

TEST(FunctionalErrors, NameWhatIsWrong) {
  const Tensor x = layers::Input({4}, {.name = "x"}), y = layers::Input({4}, {.name = "y"});
  const Layer dense = layers::Dense(4, {.name = "d"}), add = layers::Add();
  expect_error(functional({}, {x}), ErrorCode::kUsage, {"no inputs"});
  expect_error(functional({x}, {}), ErrorCode::kUsage, {"no outputs"});
  expect_error(functional({x, x}, {dense(x)}), ErrorCode::kUsage, {"twice", "'x'"});
  expect_error(functional({x, y}, {dense(x)}), ErrorCode::kUsage, {"not used", "'y'"});
  expect_error(functional({dense(x)}, {dense(x)}), ErrorCode::kUsage, {"input 0", "'d'"});
  expect_error(functional({x}, {add({dense(x), y})}), ErrorCode::kUsage, {"Add", "'y'", "not among"});
  expect_error(functional({x}, {y}), ErrorCode::kUsage, {"output", "'y'"});
  expect_error(functional({x}, {add({dense(x), add(std::vector<Tensor>())})}), ErrorCode::kUsage,
               {"Add", "no tensors"});
  expect_error(functional({x}, {layers::Dense(4, {.name = "d"})(dense(x))}), ErrorCode::kUsage, {"'d'", "another"});
  const Tensor same_name = layers::Input({4}, {.name = "x"});
  expect_error(functional({x, same_name}, {add({x, same_name})}), ErrorCode::kUsage, {"'x'"});
  const Description inner = require(functional({x}, {dense(x)}));
  expect_error(functional({x}, {layers::model(inner)(layers::model(inner)(x))}), ErrorCode::kUsage, {"'functional'"});
  for (const int64_t sections : {-1, 0, 1 << 20})
    expect_error(functional({x}, {ops::split(x, sections, 1)[0]}), ErrorCode::kUsage, {"Split", "sections"});
}

TEST(HostileArguments, BecomeErrorsThatNameTheLayer) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max(), kLeast = std::numeric_limits<int64_t>::min();
  const auto refused = [](const Layer& layer, ErrorCode code, const std::vector<std::string>& words) {
    expect_error(sequential({layers::Input({8, 8, 4}), layer}), code, words);
  };
  refused(layers::Dense(2, {.kernel_initializer = initializers::Constant(nan)}), ErrorCode::kUsage,
          {"'dense' (Dense)", "kernel_initializer.value", "nan"});
  refused(layers::Dense(2, {.kernel_regularizer = regularizers::L2(-nan)}), ErrorCode::kUsage,
          {"kernel_regularizer.l2"});
  refused(layers::Dropout(nan), ErrorCode::kUsage, {"'dropout' (Dropout)", "rate"});
  refused(layers::Dropout(1.5), ErrorCode::kBadConfig, {"rate"});
  refused(layers::TimeDistributed(layers::Dropout(nan)), ErrorCode::kUsage, {"TimeDistributed", "Dropout", "rate"});
  refused(layers::Custom("Dense", "{\"units\": 1e999}"), ErrorCode::kUsage, {"Dense"});
  refused(layers::Custom("Dense", "units"), ErrorCode::kUsage, {"Dense", "JSON"});
  refused(layers::Custom("", "{}"), ErrorCode::kUsage, {"class"});
  refused(layers::Custom("InputLayer", "{}"), ErrorCode::kUsage, {"Input()"});
  refused(layers::Custom("\xff\xfe", "{}"), ErrorCode::kUsage, {"UTF-8"});
  refused(layers::Custom("Banana", "{}", {.name = "b"}), ErrorCode::kUnsupported, {"'b' (Banana)"});
  refused(layers::Dense(2, {.name = "\xff"}), ErrorCode::kUsage, {"UTF-8"});
  refused(layers::Dense(2, {.name = "a/b"}), ErrorCode::kUsage, {"'/'"});
  refused(layers::Dense(2, {.activation = "\xc3"}), ErrorCode::kUsage, {"activation", "UTF-8"});
  refused(layers::Dense(2, {.activation = "rleu"}), ErrorCode::kUnsupported, {"rleu", "relu"});
  refused(layers::Dense(2, {.dtype = "float7"}), ErrorCode::kUnsupported, {"float7"});
  for (const int64_t size : {int64_t{0}, int64_t{-3}, kMost, kLeast}) {
    refused(layers::Dense(size), ErrorCode::kBadConfig, {"'dense' (Dense)", "units"});
    refused(layers::Conv2D(size, 3), ErrorCode::kBadConfig, {"filters"});
    refused(layers::Conv2D(3, size), ErrorCode::kBadConfig, {"kernel_size"});
    refused(layers::Conv2D(3, {3, size}, {.strides = size}), ErrorCode::kBadConfig, {"kernel_size"});
    refused(layers::MaxPooling2D(size), ErrorCode::kBadConfig, {"pool_size"});
    refused(layers::UpSampling1D(size), ErrorCode::kBadConfig, {"size"});
  }
  for (const int64_t size : {int64_t{0}, int64_t{-2}, kLeast})
    expect_error(sequential({layers::Input({size, 3}), layers::Flatten()}), ErrorCode::kUsage,
                 {"'input_layer'", "batch_shape"});
  expect_error(sequential({layers::Input({3}, {.dtype = "text"}), layers::Flatten()}), ErrorCode::kUnsupported,
               {"text"});
  refused(layers::Conv2D(3, {}), ErrorCode::kBadConfig, {"kernel_size"});
}

TEST(HostileArguments, WrappersInsideWrappersDoNotOverflowTheStack) {
  Layer layer = layers::Dense(2);
  for (int i = 0; i < 20000; ++i) layer = layers::TimeDistributed(layer);
  expect_error(sequential({layers::Input({2, 2}), layer}), ErrorCode::kUsage, {"TimeDistributed", "deep"});
}

TEST(HostileArguments, JsonTextIsChecked) {
  expect_error(Description::from_json(""), ErrorCode::kBadConfig, {"the architecture"});
  expect_error(Description::from_json("[1]"), ErrorCode::kBadConfig, {"Sequential"});
  expect_error(Description::from_json("{}"), ErrorCode::kBadConfig, {"Sequential"});
  expect_error(Description::from_json(std::string(1 << 20, '[')), ErrorCode::kBadConfig, {"the architecture"});
  expect_error(Description::from_json(dense_model().to_json(), "{"), ErrorCode::kBadConfig, {"compile"});
  expect_error(Description::from_json(dense_model().to_json(), "[]"), ErrorCode::kBadConfig, {"compile"});
  EXPECT_EQ(require(Description::from_json(dense_model().to_json(), "null")).compile_json(), "null");
  expect_error(Description::load("no such file.keras"), ErrorCode::kFileUnreadable, {"no such file.keras"});
}

TEST(DeepGraphs, TenThousandLayersNeitherOverflowNorTakeLong) {
  constexpr int kLayers = 10000;
  const Tensor x = layers::Input({2});
  {
    Tensor y = x;
    for (int i = 0; i < kLayers; ++i) y = layers::ReLU()(y);
    const Description model = require(functional({x}, {y}));
    EXPECT_EQ(model.layer_names().size(), kLayers);
  }
  Tensor z = x;  // every tensor is used twice: there are 2^10000 ways through the graph
  for (int i = 0; i < kLayers; ++i) z = layers::Add()({z, z});
  EXPECT_EQ(require(functional({x}, {z})).layer_names().size(), kLayers);
}

TEST(DeepGraphs, ModelsNestedTooDeepAreRefused) {
  auto model = sequential({layers::Input({2}), layers::ReLU()});
  int depth = 1;
  for (; model && depth < 100; ++depth) model = sequential({layers::Input({2}), *model});
  expect_error(model, ErrorCode::kBadConfig, {"nested"});
}

TEST(Values, StayValidAfterAMove) {
  Layer layer = layers::Dense(2, {.name = "d"});
  const Layer taken = std::move(layer);
  EXPECT_EQ(layer.name(), "d");  // NOLINT(bugprone-use-after-move): this is what is tested
  Description model = dense_model();
  const Description other = std::move(model);
  EXPECT_EQ(model.to_json(), other.to_json());  // NOLINT(bugprone-use-after-move): this is what is tested
}

TEST(Values, ManyThreadsUseOneDescription) {
  const Description model = require(two_inputs_two_outputs());
  const Layer shared = layers::Dense(4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        EXPECT_TRUE(model.compile({.loss = "mse"}));
        const Tensor x = layers::Input({4});
        EXPECT_TRUE(functional({x}, {shared(shared(x))}));
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace cases
