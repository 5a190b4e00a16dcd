// One error lists all unsupported features of a file. Errors about impossible shapes name the shapes.
#include <algorithm>

#include "tests/model/support.h"

namespace plimsoll::engine {
namespace {

using nlohmann::json;

Error refused(const json& config, const ModelOptions& options = untrained()) {
  const auto model = Model::create(describe(config), options);
  EXPECT_FALSE(model);
  return model ? Error{} : model.error();
}

bool lists(const Error& error, const std::string& what) {
  return std::any_of(error.facts.begin(), error.facts.end(),
                     [&](const std::string& fact) { return fact.find(what) != std::string::npos; });
}

TEST(Unsupported, EverythingIsListedAtOnce) {
  json config = sequential_json(
      {nullptr, 8, 8, 3},
      {
          layer_json(
              "Conv2D", "conv",
              {{"filters", 4}, {"kernel_size", 3}, {"lora_rank", 4}, {"kernel_constraint", {{"class_name", "Own"}}}}),
          layer_json("Lambda", "lambda", {{"function", "x"}}),
          layer_json("BatchNormalization", "bn", {{"renorm", true}}),
          layer_json("Dense", "dense",
                     {{"units", 3},
                      {"activity_regularizer", "own"},
                      {"activation", "glu"},
                      {"dtype", "float16"},
                      {"from_the_future", 7}}),
          {{"module", "my"}, {"class_name", "Dense"}, {"config", {{"name", "own"}}}, {"registered_name", "my>Dense"}},
      });
  config["compile_config"] = {{"optimizer", {{"class_name", "Adam"}, {"config", {{"invented", true}}}}},
                              {"loss", "own_loss"},
                              {"metrics", {"Own"}}};  // an unsupported metric is skipped and not an error
  const Error error = refused(config, {});
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  for (const char* what :
       {"layer 'conv' (Conv2D): lora_rank=4", "layer 'conv' (Conv2D): kernel_constraint", "layer 'lambda' (Lambda)",
        "layer 'bn' (BatchNormalization): renorm=true", "activity_regularizer", "activation=\"glu\"", "dtype=float16",
        "from_the_future=7", "class Dense of my", "invented=true", "own_loss"})
    EXPECT_TRUE(lists(error, what)) << what << "\n" << text_of(error);
  EXPECT_EQ(error.facts.size(), 11u) << text_of(error);
}

TEST(Unsupported, OperationsAreNotTheLayersOfTheirName) {
  json config = golden("layers").back()["config"];
  for (json& layer : config["config"]["layers"])
    if (layer["class_name"] == "Concatenate") {
      layer["module"] = "keras.src.ops.math";
      layer["class_name"] = layer["registered_name"] = "ViewAsComplex";
    }
  EXPECT_TRUE(
      lists(refused(config), "class ViewAsComplex of keras.src.ops.math, because it computes with complex numbers"));
}

TEST(Unsupported, ArgumentsOfACall) {
  json config = fixture(golden("structures"), "shared_at_two_depths")["config"];
  for (json& layer : config["config"]["layers"])
    if (layer["class_name"] == "Dense") layer["inbound_nodes"][0]["kwargs"]["mask"] = 3;
  EXPECT_TRUE(lists(refused(config), "layer 'shared': called with mask=3"));
}

TEST(Unsupported, FamiliesThatComeLaterAreNamed) {
  const Error error = refused(
      sequential_json({nullptr, 4, 3}, {layer_json("GRUCell", "s", {{"units", 1}}), layer_json("RandAugment", "p")}));
  EXPECT_TRUE(lists(error, "layer 's' (GRUCell): not yet: sequence layers")) << text_of(error);
  EXPECT_TRUE(lists(error, "layer 'p' (RandAugment): not yet: preprocessing layers")) << text_of(error);
}

TEST(Unsupported, MetricsAreSkippedUnderTheNamesKerasReports) {
  json config = sequential_json({nullptr, 4}, {layer_json("Dense", "d", {{"units", 3}})});
  config["compile_config"] = {
      {"optimizer", "sgd"},
      {"loss", "sparse_categorical_crossentropy"},
      {"metrics",
       {"mse",
        "categorical_accuracy",
        "acc",
        "Precision",
        {{"module", "keras.metrics"}, {"class_name", "AUC"}, {"config", {{"name", "auc_2"}}}},
        {{"module", "keras.metrics"}, {"class_name", "MeanIoU"}, {"config", {{"num_classes", 3}}}},
        {{"module", "keras.metrics"},
         {"class_name", "SparseCategoricalCrossentropy"},
         {"config", {{"name", "ce"}, {"ignore_class", 1}}}},
        {{"module", nullptr}, {"class_name", "Mine"}, {"config", json::object()}, {"registered_name", "Mine"}}}}};
  const auto model = Model::create(describe(config), {});
  ASSERT_TRUE(model) << text_of(model.error());
  EXPECT_EQ(model->skipped_metrics(),
            (std::vector<std::string>{"mse", "categorical_accuracy", "Precision", "auc_2", "mean_io_u", "mine"}));
  const Built built = build_graph(*model, 2, Mode::kTrain);
  ASSERT_EQ(built.forward.tallies.size(), 2u);
  EXPECT_EQ(built.forward.tallies[0].name, "acc");
  EXPECT_EQ(built.forward.tallies[1].name, "ce");
}

TEST(Unsupported, NoMetricsWhereNoneIsAskedFor) {
  json config = sequential_json({nullptr, 4}, {layer_json("Dense", "d", {{"units", 3}})});
  config["compile_config"] = {
      {"optimizer", "sgd"}, {"loss", "mse"}, {"metrics", {"mae", "AUC"}}, {"weighted_metrics", {"mae"}}};
  ModelOptions options;
  options.metrics = {kNoMetrics};
  const auto model = Model::create(describe(config), options);
  ASSERT_TRUE(model) << text_of(model.error());
  EXPECT_TRUE(model->skipped_metrics().empty());
  EXPECT_TRUE(build_graph(*model, 2, Mode::kTrain).forward.tallies.empty());
}

bool proposes(const Error& error, const std::string& what) {
  return std::any_of(error.remedies.begin(), error.remedies.end(),
                     [&](const std::string& remedy) { return remedy.find(what) != std::string::npos; });
}

// As Keras 3.15.1 writes them: a class that is not registered has no module, and its registered name equals its name.
TEST(Unsupported, CustomClassesSayThatTheyNeedPython) {
  const json plain = {
      {"module", nullptr}, {"class_name", "Block"}, {"config", {{"name", "b"}}}, {"registered_name", "Block"}};
  json registered = plain;
  registered["registered_name"] = "MyPackage>Block";
  json dense = layer_json("Dense", "b", {{"units", 3}});  // a user's class named Dense is not Keras's Dense
  dense["module"] = nullptr;
  dense["registered_name"] = "Dense";
  for (const auto& [layer, what] : {std::pair{plain, "layer 'b' (Block): custom class Block"},
                                    std::pair{registered, "layer 'b' (Block): custom class MyPackage>Block"},
                                    std::pair{dense, "layer 'b' (Dense): custom class Dense"}}) {
    const Error error = refused(sequential_json({nullptr, 4}, {layer}));
    EXPECT_EQ(error.code, ErrorCode::kUnsupported);
    EXPECT_EQ(error.facts, std::vector<std::string>{what});
    EXPECT_TRUE(proposes(error, "custom Python code cannot be read from a file")) << text_of(error);
  }
  const Error model = refused({{"module", nullptr},
                               {"class_name", "VAE"},
                               {"config", {{"name", "vae"}, {"trainable", true}}},
                               {"registered_name", "VAE"}});
  EXPECT_EQ(model.code, ErrorCode::kUnsupported);
  EXPECT_TRUE(lists(model, "the model is of the custom class VAE")) << text_of(model);
  EXPECT_TRUE(proposes(model, "plimsoll.fit(model, ...) in Python")) << text_of(model);
}

TEST(Unsupported, FunctionsInFilesOfKeras2NameTheWayOut) {
  const Error error = refused(sequential_json({nullptr, 4}, {layer_json("TFOpLambda", "tf.nn.relu")}));
  EXPECT_TRUE(lists(error, "TFOpLambda")) << text_of(error);
  EXPECT_TRUE(proposes(error, "save the model with Keras 3")) << text_of(error);
}

TEST(Unsupported, AnOptimizerNamesTheFlagThatReplacesIt) {
  json config = sequential_json({nullptr, 4}, {layer_json("Dense", "d", {{"units", 3}})});
  config["compile_config"] = {{"optimizer", "MultiOptimizer"}, {"loss", "own_loss"}};
  const Error error = refused(config, {});
  EXPECT_TRUE(proposes(error, "--optimizer adam")) << text_of(error);
  EXPECT_TRUE(proposes(error, "--loss NAME")) << text_of(error);
}

TEST(Unsupported, SlipsInNamesGetASuggestionAndNamesOfKerasDoNot) {
  const auto with = [](const char* activation) {
    return refused(
        sequential_json({nullptr, 4}, {layer_json("Dense", "d", {{"units", 3}, {"activation", activation}})}));
  };
  EXPECT_TRUE(lists(with("rellu"), "did you mean relu?")) << text_of(with("rellu"));
  EXPECT_FALSE(lists(with("glu"), "did you mean")) << text_of(with("glu"));
}

TEST(InputShape, OpenSizesComeFromTheData) {
  const json config = sequential_json({nullptr, nullptr, nullptr, 1},
                                      {layer_json("Conv2D", "c", {{"filters", 2}, {"kernel_size", 3}})});
  ModelOptions options = untrained();
  EXPECT_EQ(refused(config, options).code, ErrorCode::kUnknownInputShape);
  std::vector<int64_t> sample{8, 6, 1};
  options.data_shape = [&](const InputSpec&, bool) -> Result<std::vector<int64_t>> { return sample; };
  // Data may lack a trailing dimension of 1.
  for (const auto& one : {std::vector<int64_t>{8, 6, 1}, std::vector<int64_t>{8, 6}}) {
    sample = one;
    const auto model = Model::create(describe(config), options);
    ASSERT_TRUE(model) << text_of(model.error());
    EXPECT_EQ(model->inputs()[0].sample, (Shape{8, 6, 1}));
  }
  sample = {8, 6, 3};
  const Error error = refused(config, options);
  EXPECT_EQ(error.code, ErrorCode::kDataShape);
  EXPECT_NE(error.what.find("(8, 6, 3)"), std::string::npos) << text_of(error);
  sample = {1, 8, 6};
  EXPECT_EQ(refused(config, options).remedies, std::vector<std::string>{"np.transpose(x, (0, 2, 3, 1))"});
}

TEST(Unsupported, HarmlessKeysAreNotListed) {
  const auto model = Model::create(
      describe(sequential_json(
          {nullptr, 4},
          {layer_json("Dense", "d",
                      {{"units", 3}, {"dtype", "float64"}, {"quantization_config", nullptr}, {"new_key", nullptr}})})),
      untrained());
  EXPECT_TRUE(model) << text_of(model.error());
}

json conv(json config) {
  if (!config.contains("filters")) config["filters"] = 4;
  if (!config.contains("kernel_size")) config["kernel_size"] = 3;
  return sequential_json({nullptr, 8, 8, 6}, {layer_json("Conv2D", "conv", config)});
}

TEST(Geometry, ImpossibleShapesNameTheLayer) {
  const std::vector<std::pair<json, ErrorCode>> cases = {
      {conv({{"kernel_size", 9}}), ErrorCode::kBadGeometry},
      {conv({{"kernel_size", 3}, {"dilation_rate", 4}}), ErrorCode::kBadGeometry},
      {conv({{"groups", 4}}), ErrorCode::kBadGeometry},
      {conv({{"filters", 0}}), ErrorCode::kBadConfig},
      {conv({{"filters", -3}}), ErrorCode::kBadConfig},
      {conv({{"strides", 0}}), ErrorCode::kBadConfig},
      {conv({{"kernel_size", {3, 3, 3}}}), ErrorCode::kBadConfig},
      {conv({{"filters", int64_t{1} << 45}}), ErrorCode::kBadGeometry},
      {conv({{"filters", std::numeric_limits<uint64_t>::max()}}), ErrorCode::kBadConfig},
      {conv({{"strides", std::numeric_limits<int64_t>::max()}}), ErrorCode::kBadConfig},
      {sequential_json({nullptr, 4}, {layer_json("Conv2D", "c", {{"filters", 1}, {"kernel_size", 1}})}),
       ErrorCode::kBadGeometry},
      {sequential_json({nullptr, 8, 8, 3}, {layer_json("MaxPooling2D", "p", {{"pool_size", 9}})}),
       ErrorCode::kBadGeometry},
      {sequential_json({nullptr, 5}, {layer_json("Reshape", "r", {{"target_shape", {2, -1}}})}),
       ErrorCode::kBadGeometry},
      {sequential_json({nullptr, 5}, {layer_json("Reshape", "r", {{"target_shape", {-1, -1}}})}),
       ErrorCode::kBadGeometry},
      {sequential_json({nullptr, 0}, {layer_json("Flatten", "f")}), ErrorCode::kBadGeometry},
      {sequential_json({nullptr, -4}, {layer_json("Flatten", "f")}), ErrorCode::kBadGeometry},
      {sequential_json({nullptr, int64_t{1} << 40, int64_t{1} << 40}, {layer_json("Flatten", "f")}),
       ErrorCode::kBadGeometry},
      {sequential_json({nullptr, 1 << 20, 1 << 20, 1}, {layer_json("UpSampling2D", "u", {{"size", 1 << 10}})}),
       ErrorCode::kBadGeometry},
      {sequential_json({nullptr, 4}, {layer_json("Dropout", "d", {{"rate", 1.5}})}), ErrorCode::kBadConfig},
      {sequential_json(
           {nullptr, 8, 8, 3},
           {layer_json(
               "Conv2DTranspose", "t",
               {{"filters", 1}, {"kernel_size", 2}, {"strides", 3}, {"padding", "same"}, {"output_padding", 0}})}),
       ErrorCode::kBadGeometry},
  };
  for (const auto& [config, code] : cases) {
    const Error error = refused(config);
    EXPECT_EQ(error.code, code) << config["config"]["layers"][1].dump() << text_of(error);
  }
}

TEST(Geometry, ASharedLayerHasOneShapeOfWeights) {
  json config = fixture(golden("structures"), "shared_at_two_depths")["config"];
  for (json& layer : config["config"]["layers"])
    if (layer["class_name"] == "Dense") layer["config"]["units"] = 5;
  const Error error = refused(config);
  EXPECT_EQ(error.code, ErrorCode::kBadGeometry);
  EXPECT_NE(error.what.find("[4,5] in one call and [5,5] in another"), std::string::npos) << text_of(error);
}

TEST(Geometry, BatchesThatCannotBeCounted) {
  const Model model =
      *Model::create(describe(sequential_json({nullptr, 1 << 20}, {layer_json("ReLU", "r")})), untrained());
  EXPECT_TRUE(model.check_batch(1 << 20));
  EXPECT_FALSE(model.check_batch(int64_t{1} << 40));
  EXPECT_FALSE(model.check_batch(0));
}

TEST(InputShape, NoneIsGivenItsSizeByTheFlag) {
  const json config = sequential_json({nullptr, nullptr, nullptr, 3}, {layer_json("GlobalAveragePooling2D", "g")});
  const Error error = refused(config);
  EXPECT_EQ(error.code, ErrorCode::kUnknownInputShape);
  EXPECT_FALSE(error.remedies.empty());
  ModelOptions options = untrained();
  options.input_shape = {16, 24, 3};
  const auto model = Model::create(describe(config), options);
  ASSERT_TRUE(model) << text_of(model.error());
  EXPECT_EQ(model->inputs()[0].sample, (Shape{16, 24, 3}));
  options.input_shape = {16, 24, 4};
  EXPECT_EQ(refused(config, options).code, ErrorCode::kUsage);
  options.input_shape = {16, 24};
  EXPECT_EQ(refused(config, options).code, ErrorCode::kUsage);
  options.input_shape = {16, -24, 3};
  EXPECT_EQ(refused(config, options).code, ErrorCode::kBadGeometry);
}

TEST(InputShape, ASequentialModelThatWasNeverBuilt) {
  json config = sequential_json({nullptr, 4}, {layer_json("Dense", "d", {{"units", 3}})});
  config["config"]["layers"].erase(0);
  EXPECT_EQ(refused(config).code, ErrorCode::kUnknownInputShape);
  ModelOptions options = untrained();
  options.input_shape = {7};
  const auto model = Model::create(describe(config), options);
  ASSERT_TRUE(model) << text_of(model.error());
  EXPECT_EQ(model->weights()[0].shape, (Shape{7, 3}));
  config["config"]["build_input_shape"] = {nullptr, 5};
  EXPECT_EQ(Model::create(describe(config), untrained())->weights()[0].shape, (Shape{5, 3}));
}

}  // namespace
}  // namespace plimsoll::engine
