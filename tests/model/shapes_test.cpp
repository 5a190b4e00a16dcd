// One architecture with several input shapes; layers with several outputs and with sublayers; images with one spatial
// dimension.
#include "tests/model/support.h"

namespace plimsoll::engine {
namespace {

using Json = nlohmann::json;

Json convolutional(const Json& batch_shape) {
  return sequential_json(batch_shape,
                         {layer_json("Conv2D", "conv", {{"filters", 4}, {"kernel_size", 3}, {"padding", "same"}}),
                          layer_json("GlobalAveragePooling2D", "pool"), layer_json("Dense", "out", {{"units", 2}})});
}

TEST(Shapes, OneArchitectureGivesModelsOfSeveralInputShapesWithTheSameWeights) {
  ModelOptions options = untrained();
  options.input_shape = {16, 16, 3};
  const Model small = *Model::create(describe(convolutional({nullptr, nullptr, nullptr, 3})), options);
  const auto large = small.with_inputs({Shape{24, 32, 3}});
  ASSERT_TRUE(large) << text_of(large.error());
  EXPECT_EQ(large->inputs()[0].sample, (Shape{24, 32, 3}));
  EXPECT_EQ(large->layers()[0].output, (Shape{24, 32, 4}));
  ASSERT_EQ(large->weights().size(), small.weights().size());
  for (size_t i = 0; i < small.weights().size(); ++i) {
    EXPECT_EQ(large->weights()[i].name, small.weights()[i].name);
    EXPECT_EQ(large->weights()[i].file_path, small.weights()[i].file_path);
    EXPECT_EQ(large->weights()[i].shape, small.weights()[i].shape);
  }
}

TEST(Shapes, AWeightWhoseShapeDependsOnTheInputCannotBeShared) {
  ModelOptions options = untrained();
  options.input_shape = {4, 4, 3};
  const Json config = sequential_json({nullptr, nullptr, nullptr, 3},
                                      {layer_json("Flatten", "flat"), layer_json("Dense", "out", {{"units", 2}})});
  const Model model = *Model::create(describe(config), options);
  const auto other = model.with_inputs({Shape{5, 4, 3}});
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::kBadGeometry);
  EXPECT_NE(text_of(other.error()).find("weight 'out/kernel' is [60,2] for these inputs but [48,2]"), std::string::npos)
      << text_of(other.error());
}

TEST(Shapes, InputsMustAgreeWithWhatTheArchitectureDeclares) {
  const auto architecture = Architecture::read(describe(convolutional({nullptr, 16, nullptr, 3})), untrained());
  ASSERT_TRUE(architecture);
  EXPECT_TRUE(architecture->with_inputs({Shape{16, 8, 3}}));
  EXPECT_FALSE(architecture->with_inputs({Shape{8, 8, 3}}));
  EXPECT_FALSE(architecture->with_inputs({Shape{16, 8}}));
  EXPECT_FALSE(architecture->with_inputs({}));
}

Json tensor(const std::string& layer, int output, const Json& shape) {
  return {{"class_name", "__keras_tensor__"},
          {"config", {{"shape", shape}, {"dtype", "float32"}, {"keras_history", {layer, 0, output}}}}};
}
Json node(const Json& arguments) {
  return Json::array({{{"args", Json::array({arguments})}, {"kwargs", Json::object()}}});
}

TEST(Shapes, EachOutputOfASplitIsATensorOfItsOwn) {
  Json in = layer_json("InputLayer", "in", {{"batch_shape", {nullptr, 2, 6}}, {"dtype", "float32"}});
  in["inbound_nodes"] = Json::array();
  Json split = {{"module", "keras.src.ops.numpy"},
                {"class_name", "Split"},
                {"config", {{"name", "split"}, {"indices_or_sections", {1, 3}}, {"axis", -1}}},
                {"registered_name", "Split"},
                {"name", "split"},
                {"inbound_nodes", node(tensor("in", 0, {nullptr, 2, 6}))}};
  Json dense = layer_json("Dense", "dense", {{"units", 5}});
  dense["inbound_nodes"] = node(tensor("split", 2, {nullptr, 2, 3}));
  Json config = {{"module", "keras"},
                 {"class_name", "Functional"},
                 {"config",
                  {{"name", "net"},
                   {"layers", {in, split, dense}},
                   {"input_layers", {{"in", 0, 0}}},
                   {"output_layers", {{"split", 0, 1}, {"dense", 0, 0}}}}},
                 {"registered_name", nullptr}};
  const auto model = Model::create(describe(config), untrained());
  ASSERT_TRUE(model) << text_of(model.error());
  EXPECT_EQ(model->outputs()[0].sample, (Shape{2, 2}));
  EXPECT_EQ(model->weights()[0].shape, (Shape{3, 5}));
  const Built built = build_graph(*model, 4, Mode::kPredict);
  ASSERT_TRUE(built.status) << text_of(built.status.error());
  EXPECT_EQ(count_op(built.graph, "slice"), 3);
  config["config"]["layers"][2]["inbound_nodes"] = node(tensor("split", 3, {nullptr, 2, 3}));
  EXPECT_FALSE(Model::create(describe(config), untrained()));
  config["config"]["layers"][1]["config"]["indices_or_sections"] = 4;
  const auto uneven = Model::create(describe(config), untrained());
  ASSERT_FALSE(uneven);
  EXPECT_NE(text_of(uneven.error()).find("6 cannot be split into 4 equal pieces"), std::string::npos);
}

TEST(Shapes, WeightsOfASublayerHaveItsNameAndItsPathInTheFile) {
  Json inner = layer_json("Dense", "inner", {{"units", 8}, {"trainable", false}});
  const Json config = sequential_json({nullptr, 6, 4}, {layer_json("TimeDistributed", "td", {{"layer", inner}})});
  const auto model = Model::create(describe(config), untrained());
  ASSERT_TRUE(model) << text_of(model.error());
  ASSERT_EQ(model->weights().size(), 2u);
  EXPECT_EQ(model->weights()[0].name, "td/inner/kernel");
  EXPECT_EQ(model->weights()[0].file_path, "layers/time_distributed/layer/vars/0");
  EXPECT_EQ(model->weights()[1].file_path, "layers/time_distributed/layer/vars/1");
  EXPECT_FALSE(model->weights()[0].trainable);
  EXPECT_EQ(model->outputs()[0].sample, (Shape{6, 8}));
}

TEST(Shapes, ATimeDistributedLayerMayBeRandomOrCoupleSamplesButMustBeKnown) {
  const auto around = [](const Json& inner) {
    return Model::create(
        describe(sequential_json({nullptr, 6, 4}, {layer_json("TimeDistributed", "td", {{"layer", inner}})})),
        untrained());
  };
  EXPECT_TRUE(around(layer_json("Dropout", "inner", {{"rate", 0.5}})));
  const auto normalised = around(layer_json("BatchNormalization", "inner"));
  ASSERT_TRUE(normalised) << text_of(normalised.error());
  EXPECT_TRUE(normalised->couples_samples());
  const auto unknown = around(layer_json("NoSuchLayer", "inner"));
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kUnsupported) << text_of(unknown.error());
}

TEST(Shapes, AnImageOfOneDimensionIsOneOfHeightOneToTheOps) {
  const Json config = sequential_json(
      {nullptr, 9, 2},
      {layer_json("Conv1D", "conv",
                  {{"filters", 3}, {"kernel_size", {4}}, {"dilation_rate", {2}}, {"padding", "causal"}}),
       layer_json("MaxPooling1D", "pool", {{"pool_size", {2}}, {"padding", "same"}})});
  const auto model = Model::create(describe(config), untrained());
  ASSERT_TRUE(model) << text_of(model.error());
  EXPECT_EQ(model->weights()[0].shape, (Shape{4, 2, 3}));
  EXPECT_EQ(model->outputs()[0].sample, (Shape{5, 3}));
  const Built built = build_graph(*model, 2, Mode::kPredict);
  ASSERT_TRUE(built.status) << text_of(built.status.error());
  EXPECT_EQ(find_node(built.graph, "conv2d")->attrs.list("pads"), (std::vector<int64_t>{0, 0, 6, 0}));
  EXPECT_EQ(find_node(built.graph, "max_pool2d")->attrs.list("pads"), (std::vector<int64_t>{0, 0, 0, 1}));
}

TEST(Shapes, AnImageOfTheWrongRankIsRefusedByName) {
  const Json config =
      sequential_json({nullptr, 4, 4, 1}, {layer_json("Conv3D", "c", {{"filters", 3}, {"kernel_size", 2}})});
  const auto model = Model::create(describe(config), untrained());
  ASSERT_FALSE(model);
  EXPECT_NE(text_of(model.error()).find("layer 'c' (Conv3D)"), std::string::npos) << text_of(model.error());
}

}  // namespace
}  // namespace plimsoll::engine
