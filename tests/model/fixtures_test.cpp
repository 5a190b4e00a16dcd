// Every layer and structure, compared with what Keras reports for the same file.
#include <algorithm>
#include <set>

#include "tests/model/support.h"

namespace plimsoll::engine {
namespace {

using nlohmann::json;

std::string last_part(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

void expect_same(const json& keras, const Model& model) {
  SCOPED_TRACE(keras["name"].get<std::string>());
  ASSERT_EQ(model.weights().size(), keras["weights"].size());
  int64_t parameters = 0;
  for (size_t i = 0; i < model.weights().size(); ++i) {
    const Weight& weight = model.weights()[i];
    EXPECT_EQ(last_part(weight.name), keras["weights"][i]["name"].get<std::string>());
    EXPECT_EQ(json(weight.shape.dims), keras["weights"][i]["shape"]) << weight.name;
    EXPECT_EQ(weight.trainable, keras["weights"][i]["trainable"].get<bool>()) << weight.name;
    parameters += weight.shape.elements();
  }
  EXPECT_EQ(parameters, keras["parameters"].get<int64_t>());
  ASSERT_EQ(model.outputs().size(), keras["outputs"].size());
  for (size_t i = 0; i < model.outputs().size(); ++i)
    EXPECT_EQ(json(model.outputs()[i].sample.dims), keras["outputs"][i]);
  ASSERT_EQ(model.layers().size(), keras["layers"].size());
  for (size_t i = 0; i < model.layers().size(); ++i) {
    const LayerInfo& layer = model.layers()[i];
    EXPECT_EQ(last_part(layer.name), keras["layers"][i]["name"].get<std::string>());
    EXPECT_EQ(layer.class_name, keras["layers"][i]["class"].get<std::string>());
    EXPECT_EQ(json(layer.output.dims), keras["layers"][i]["output"]) << layer.name;
    EXPECT_EQ(layer.parameters, keras["layers"][i]["parameters"].get<int64_t>()) << layer.name;
  }
}

// The datasets in the file must be exactly the weights, with their shapes.
void expect_file_paths(const json& keras, const Model& model) {
  json found = json::array();
  for (const Weight& weight : model.weights()) found.push_back({weight.file_path, weight.shape.dims});
  std::sort(found.begin(), found.end());
  json wanted = keras["datasets"];
  // Keras stores the state of Dropout's seed generator among the datasets, but it is not a weight.
  wanted.erase(
      std::remove_if(wanted.begin(), wanted.end(),
                     [](const json& d) { return d[0].get<std::string>().find("seed_generator") != std::string::npos; }),
      wanted.end());
  EXPECT_EQ(found, wanted) << keras["name"];
}

// The graph's own shape inference must give Keras's shapes.
void expect_graph(const json& keras, const Model& model) {
  SCOPED_TRACE(keras["name"].get<std::string>());
  constexpr int64_t kBatch = 5;
  for (const Mode mode : {Mode::kTrain, Mode::kEvaluate, Mode::kPredict}) {
    const Built built = build_graph(model, kBatch, mode);
    ASSERT_TRUE(built.status) << text_of(built.status.error());
    const Status good = verify(built.graph);
    ASSERT_TRUE(good) << text_of(good.error()) << print(built.graph);
    ASSERT_EQ(built.forward.predictions.size(), model.outputs().size());
    for (size_t i = 0; i < model.outputs().size(); ++i) {
      json wanted = keras["outputs"][i];
      wanted.insert(wanted.begin(), kBatch);
      EXPECT_EQ(json(built.graph.type(built.forward.predictions[i]).shape.dims), wanted);
    }
    for (const Weight& weight : model.weights()) EXPECT_NE(built.graph.find(weight.name), kNone) << weight.name;
  }
}

class Fixtures : public testing::TestWithParam<const char*> {};

TEST_P(Fixtures, AgreeWithKeras) {
  for (const json& keras : golden(GetParam())) {
    const auto model = Model::create(describe(keras["config"]), untrained());
    ASSERT_TRUE(model) << keras["name"] << text_of(model.error());
    expect_same(keras, *model);
    if (keras.contains("datasets")) expect_file_paths(keras, *model);
  }
}

TEST_P(Fixtures, BuildVerifiedGraphs) {
  for (const json& keras : golden(GetParam())) {
    const auto model = Model::create(describe(keras["config"]), untrained());
    ASSERT_TRUE(model);
    expect_graph(keras, *model);
  }
}

INSTANTIATE_TEST_SUITE_P(Keras, Fixtures, testing::Values("layers", "structures", "mobilenet_v2", "resnet50"),
                         [](const auto& param_info) { return std::string(param_info.param); });

Model structure(const std::string& name) {
  const json list = golden("structures");
  return std::move(*Model::create(describe(fixture(list, name)["config"]), untrained()));
}

TEST(Structure, WeightNamesArePathsAndUnique) {
  const Model model = structure("siamese");
  std::set<std::string> names;
  for (const Weight& weight : model.weights()) names.insert(weight.name);
  EXPECT_EQ(names.size(), model.weights().size());
  EXPECT_TRUE(names.count("backbone/bn/moving_mean"));
  EXPECT_TRUE(names.count("same/kernel"));
}

TEST(Structure, ASharedModelCalledTwiceHasOneSetOfWeightsAndTwoOfNodes) {
  const Model model = structure("siamese");
  const Built built = build_graph(model, 4, Mode::kTrain);
  EXPECT_EQ(count_op(built.graph, "conv2d"), 2);
  EXPECT_EQ(count_op(built.graph, "batch_norm_stats"), 2);
  // Both calls change the statistics, one after the other, but each statistic has only one update.
  EXPECT_EQ(count_op(built.graph, "moving_average"), 4);
  ASSERT_EQ(built.graph.updates.size(), 2u);
  for (const Update& update : built.graph.updates) {
    const Node& last = built.graph.node(built.graph.value(update.value).producer);
    const Node& first = built.graph.node(built.graph.value(last.inputs[0]).producer);
    EXPECT_EQ(first.op, "moving_average");
    EXPECT_EQ(first.inputs[0], update.persistent);
  }
}

TEST(Structure, AFrozenBatchNormalizationUsesMovingStatisticsInTraining) {
  const Model frozen = structure("frozen_backbone");
  EXPECT_FALSE(frozen.couples_samples());
  const Built built = build_graph(frozen, 4, Mode::kTrain);
  EXPECT_EQ(count_op(built.graph, "batch_norm_stats"), 0);
  EXPECT_TRUE(built.graph.updates.empty());
  const Node* apply = find_node(built.graph, "batch_norm_apply");
  ASSERT_NE(apply, nullptr);
  EXPECT_FALSE(apply->attrs.flag("batch_stats"));
  EXPECT_EQ(built.graph.value(apply->inputs[1]).name, "backbone/bn/moving_mean");
}

TEST(Structure, ATrainableBatchNormalizationCouplesSamplesInTrainingOnly) {
  const Model model = structure("half_frozen");
  EXPECT_EQ(model.coupling_layers(), std::vector<std::string>{"backbone/bn"});
  EXPECT_EQ(count_op(build_graph(model, 4, Mode::kTrain).graph, "batch_norm_stats"), 1);
  EXPECT_EQ(count_op(build_graph(model, 4, Mode::kEvaluate).graph, "batch_norm_stats"), 0);
}

TEST(Structure, DropoutRunsInTrainingThoughTheFileSaysTrainingFalse) {
  const Model model = structure("half_frozen");
  EXPECT_EQ(count_op(build_graph(model, 4, Mode::kTrain).graph, "dropout"), 1);
  EXPECT_EQ(count_op(build_graph(model, 4, Mode::kPredict).graph, "dropout"), 0);
}

TEST(Structure, OutputsOfOneModelGetDifferentPortNames) {
  const Model model = structure("nested_output");
  EXPECT_EQ(model.outputs()[0].name, "backbone");
  EXPECT_EQ(model.outputs()[1].name, "backbone_1");
}

}  // namespace
}  // namespace plimsoll::engine
