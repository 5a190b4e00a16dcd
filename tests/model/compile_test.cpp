// Losses, metrics and reported values, as Keras reads a compile configuration.
#include <algorithm>

#include "tests/model/support.h"

namespace plimsoll::engine {
namespace {

using nlohmann::json;

Model compiled(const std::string& name) {
  const json list = golden("compiled");
  auto model = Model::create(describe(fixture(list, name)["config"]), {});
  EXPECT_TRUE(model) << text_of(model.error());
  return std::move(*model);
}

TEST(Compile, ReportsUnderTheNamesOfKeras) {
  for (const json& keras : golden("compiled")) {
    const auto model = Model::create(describe(keras["config"]), {});
    ASSERT_TRUE(model) << keras["name"] << text_of(model.error());
    const Built built = build_graph(*model, 6, Mode::kEvaluate);
    ASSERT_TRUE(built.status) << text_of(built.status.error());
    const Status good = verify(built.graph);
    ASSERT_TRUE(good) << text_of(good.error());
    std::vector<std::string> names{"loss"};
    for (const Tally& tally : built.forward.tallies) names.push_back(tally.name);
    std::sort(names.begin(), names.end());
    EXPECT_EQ(json(names), keras["reported"]) << keras["name"];
  }
}

TEST(Compile, SoftmaxBeforeTheLossIsLookedBehind) {
  const Built built = build_graph(compiled("plain"), 6, Mode::kTrain);
  const Node* loss = find_node(built.graph, "softmax_cross_entropy");
  ASSERT_NE(loss, nullptr);
  EXPECT_EQ(built.graph.node(built.graph.value(loss->inputs[0]).producer).op, "bias_add");
  EXPECT_TRUE(loss->attrs.flag("sparse"));
  EXPECT_EQ(built.graph.type(loss->inputs[1]), (TensorType{DType::kInt32, Shape{6}}));
  // The prediction is still the softmax's output.
  EXPECT_EQ(built.graph.node(built.graph.value(built.forward.predictions[0]).producer).op, "softmax");
}

json with_loss(json config, const char* loss) {
  config["compile_config"] = {{"optimizer", "sgd"}, {"loss", loss}};
  return config;
}

// Observed in Keras 3.15.1 and 3.0.0: the logits are kept with the tensor, whichever function was applied to them.
TEST(Compile, SoftmaxBeforeBinaryCrossEntropyIsLookedBehindToo) {
  const json config =
      with_loss(sequential_json({nullptr, 4}, {layer_json("Dense", "d", {{"units", 3}, {"activation", "softmax"}})}),
                "binary_crossentropy");
  const Built built = build_graph(*Model::create(describe(config), {}), 6, Mode::kTrain);
  const Node* loss = find_node(built.graph, "binary_cross_entropy");
  ASSERT_NE(loss, nullptr);
  EXPECT_TRUE(loss->attrs.flag("from_logits"));
  EXPECT_EQ(built.graph.node(built.graph.value(loss->inputs[0]).producer).op, "bias_add");
}

TEST(Compile, AnythingBetweenSoftmaxAndLossMeansProbabilities) {
  const json config =
      with_loss(sequential_json({nullptr, 4}, {layer_json("Dense", "d", {{"units", 3}, {"activation", "softmax"}}),
                                               layer_json("Reshape", "r", {{"target_shape", {3}}})}),
                "categorical_crossentropy");
  const Built built = build_graph(*Model::create(describe(config), {}), 6, Mode::kTrain);
  EXPECT_EQ(count_op(built.graph, "cross_entropy"), 1);
  EXPECT_EQ(count_op(built.graph, "softmax_cross_entropy"), 0);
}

TEST(Compile, LinearActivationAndIdleDropoutAreNothingBetween) {
  const json config =
      with_loss(sequential_json({nullptr, 4}, {layer_json("Dense", "d", {{"units", 3}}), layer_json("Softmax", "s"),
                                               layer_json("Activation", "a", {{"activation", "linear"}}),
                                               layer_json("Dropout", "o", {{"rate", 0.5}})}),
                "categorical_crossentropy");
  const Model model = *Model::create(describe(config), {});
  EXPECT_EQ(count_op(build_graph(model, 6, Mode::kEvaluate).graph, "softmax_cross_entropy"), 1);
  EXPECT_EQ(count_op(build_graph(model, 6, Mode::kTrain).graph, "cross_entropy"), 1);
}

TEST(Compile, FromLogitsWithoutAnActivation) {
  const Built built = build_graph(compiled("functions"), 6, Mode::kTrain);
  EXPECT_EQ(count_op(built.graph, "softmax_cross_entropy"),
            1);  // the metric of the same kind is not computed from logits and has its own node
  EXPECT_EQ(count_op(built.graph, "cross_entropy"), 1);
}

TEST(Compile, LabelSmoothingReachesTheNode) {
  const Built built = build_graph(compiled("categorical"), 6, Mode::kTrain);
  EXPECT_DOUBLE_EQ(find_node(built.graph, "softmax_cross_entropy")->attrs.real("label_smoothing"), 0.1);
}

TEST(Compile, PortsSayWhatTargetsLookLike) {
  const Model model = compiled("two_list");
  const Port &kind = model.outputs()[0], &size = model.outputs()[1];
  EXPECT_TRUE(kind.sparse_labels);
  EXPECT_EQ(kind.target, Shape{});
  EXPECT_EQ(kind.classes, 3);
  EXPECT_FALSE(size.sparse_labels);
  EXPECT_EQ(size.target, Shape{1});
  EXPECT_DOUBLE_EQ(kind.loss_weight, 1);
  EXPECT_DOUBLE_EQ(size.loss_weight, 0.5);
}

TEST(Compile, LossesAndWeightsByNameFollowTheOutputs) {
  const Model model = compiled("two_dict");
  EXPECT_DOUBLE_EQ(model.outputs()[0].loss_weight, 2);
  EXPECT_DOUBLE_EQ(model.outputs()[1].loss_weight, 0.25);
  EXPECT_EQ(count_op(build_graph(model, 2, Mode::kTrain).graph, "absolute_error"), 1);
}

TEST(Compile, SampleWeightsCountInLossesAndWeightedMetricsOnly) {
  const Model model = compiled("two_list");
  DataTypes data;
  data.sample_weights = true;
  const Built built = build_graph(model, 6, Mode::kTrain, data);
  ASSERT_TRUE(built.status) << text_of(built.status.error());
  const auto sum_is_weighted = [&](const Tally& tally) {
    return built.graph.node(built.graph.value(tally.sum).producer).attrs.flag("weighted");
  };
  for (const Tally& tally : built.forward.tallies) {
    const bool loss = tally.name == "kind_loss" || tally.name == "size_loss";
    const bool weighted = tally.name == "kind_acc" || tally.name == "size_weighted_mae";
    EXPECT_EQ(sum_is_weighted(tally), loss || weighted) << tally.name;
    EXPECT_EQ(tally.weighted, weighted) << tally.name;  // a loss is divided by the number of rows, not by their weights
  }
}

TEST(Compile, DataKeepItsTypeAndCastsAreNodes) {
  const Model model = compiled("plain");
  DataTypes data{{DType::kUInt8}, {DType::kInt64}, false};
  const Built built = build_graph(model, 6, Mode::kTrain, data);
  EXPECT_EQ(built.graph.type(built.graph.find("x:" + model.inputs()[0].name)).dtype, DType::kUInt8);
  EXPECT_EQ(built.graph.type(built.graph.find("y:" + model.outputs()[0].name)).dtype, DType::kInt64);
  EXPECT_EQ(count_op(built.graph, "cast"), 2);
  const Status good = verify(built.graph);
  EXPECT_TRUE(good) << text_of(good.error());
}

TEST(Compile, OneLabelAPixelIsOneRowAPixel) {
  const json config =
      with_loss(sequential_json(
                    {nullptr, 4, 5, 2},
                    {layer_json("Conv2D", "c", {{"filters", 3}, {"kernel_size", {1, 1}}, {"activation", "softmax"}})}),
                "sparse_categorical_crossentropy");
  const Model model = *Model::create(describe(config), {});
  EXPECT_EQ(model.outputs()[0].target, (Shape{4, 5}));
  EXPECT_EQ(model.outputs()[0].rows_per_sample, 20);
  const Built built = build_graph(model, 2, Mode::kTrain);
  ASSERT_TRUE(built.status) << text_of(built.status.error());
  EXPECT_EQ(built.graph.type(find_node(built.graph, "softmax_cross_entropy")->outputs[0]).shape, Shape{40});
}

TEST(Compile, FlagsCompileAModelThatNeverWas) {
  const json config = sequential_json({nullptr, 4}, {layer_json("Dense", "d", {{"units", 3}})});
  const auto refused = Model::create(describe(config), {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kNotCompiled);
  EXPECT_EQ(refused.error().remedies.size(), 2u);
  ModelOptions options;
  options.optimizer = "adamw";
  options.loss = R"({"class_name": "SparseCategoricalCrossentropy", "config": {"from_logits": true}})";
  options.metrics = {"accuracy"};
  options.learning_rate = 0.5;
  const auto model = Model::create(describe(config), options);
  ASSERT_TRUE(model) << text_of(model.error());
  EXPECT_DOUBLE_EQ(model->optimizer().weight_decay, 0.004);
  EXPECT_DOUBLE_EQ(model->optimizer().learning_rate, 0.5);
  const Built built = build_graph(*model, 2, Mode::kTrain);
  EXPECT_EQ(count_op(built.graph, "softmax_cross_entropy"), 1);
  EXPECT_EQ(find_node(built.graph, "match")->attrs.text("kind"), "sparse");
}

TEST(Compile, EvaluationNeedsALossAndNoOptimizer) {
  ModelOptions options;
  options.needs_training = false;
  json config = sequential_json({nullptr, 4}, {layer_json("Dense", "d", {{"units", 3}})});
  EXPECT_FALSE(Model::create(describe(config), options));
  config["compile_config"] = {{"loss", "mse"}, {"optimizer", "lion"}};
  EXPECT_TRUE(Model::create(describe(config), options));
}

TEST(Compile, PenaltiesAreOfTrainableWeightsOnly) {
  const json l2 = {
      {"module", "keras.regularizers"}, {"class_name", "L2"}, {"config", {{"l2", 0.25}}}, {"registered_name", nullptr}};
  const json l1l2 = {{"module", "keras.regularizers"},
                     {"class_name", "L1L2"},
                     {"config", {{"l1", 0.5}, {"l2", 0.125}}},
                     {"registered_name", nullptr}};
  const json config = sequential_json(
      {nullptr, 4}, {layer_json("Dense", "a", {{"units", 3}, {"kernel_regularizer", l2}, {"bias_regularizer", "l1"}}),
                     layer_json("Dense", "b", {{"units", 3}, {"kernel_regularizer", l1l2}, {"trainable", false}})});
  const Model model = *Model::create(describe(config), untrained());
  EXPECT_DOUBLE_EQ(model.weights()[0].l2, 0.25);
  EXPECT_DOUBLE_EQ(model.weights()[1].l1, 0.01);
  EXPECT_DOUBLE_EQ(model.weights()[2].l1, 0.5);
  GraphBuilder b = make_builder();
  const ValueId penalty = append_penalty(b, model, DType::kFloat32);
  ASSERT_NE(penalty, kNone);
  EXPECT_EQ(count_op(b.graph(), "l1_l2_penalty"), 2);
  EXPECT_EQ(b.graph().type(penalty).shape, Shape{});
  const Model none =
      *Model::create(describe(sequential_json({nullptr, 4}, {layer_json("Dense", "a", {{"units", 3}})})), untrained());
  EXPECT_EQ(append_penalty(b, none, DType::kFloat32), kNone);
}

}  // namespace
}  // namespace plimsoll::engine
