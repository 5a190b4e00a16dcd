// Layers that stay in float32 under a mixed policy.
#include "tests/model/support.h"

namespace plimsoll::engine {
namespace {

const Precision kMixed(DType::kFloat32, DType::kFloat16);

nlohmann::json network() {
  nlohmann::json config = sequential_json(
      {nullptr, 4, 4, 1}, {layer_json("Conv2D", "conv", {{"filters", 2}, {"kernel_size", 3}, {"use_bias", false}}),
                           layer_json("BatchNormalization", "norm"), layer_json("Flatten", "flat"),
                           layer_json("Dense", "out", {{"units", 3}, {"activation", "softmax"}})});
  config["compile_config"] = {{"optimizer", "sgd"}, {"loss", "sparse_categorical_crossentropy"}};
  return config;
}

Model model_with(std::vector<std::string> float32_layers) {
  ModelOptions options;
  options.float32_layers = std::move(float32_layers);
  auto model = Model::create(describe(network()), options);
  EXPECT_TRUE(model) << text_of(model.error());
  return std::move(*model);
}

std::string graph_text(const Model& model, const Precision& precision) {
  const Built built = build_graph(model, 8, Mode::kTrain, {{DType::kUInt8}, {DType::kInt32}, false}, precision);
  EXPECT_TRUE(built.status) << text_of(built.status.error());
  return print(built.graph);
}

TEST(Float32Layers, AllOfThemMakeTheGraphOfFloat32) {
  const std::string plain = graph_text(model_with({}), DType::kFloat32);
  EXPECT_EQ(graph_text(model_with({"*"}), kMixed), plain);
  EXPECT_EQ(graph_text(model_with({"conv", "norm", "[fo]*t"}), kMixed), plain);
  EXPECT_NE(graph_text(model_with({}), kMixed), plain);
  EXPECT_EQ(graph_text(model_with({"out"}), DType::kFloat32), plain);  // in a float32 run, the option changes nothing
}

TEST(Float32Layers, TensorsAreCastWhereTheyCrossAndWeightsStayAsTheyAre) {
  const Built built =
      build_graph(model_with({"out"}), 8, Mode::kTrain, {{DType::kUInt8}, {DType::kInt32}, false}, kMixed);
  ASSERT_TRUE(built.status) << text_of(built.status.error());
  const Graph& graph = built.graph;
  EXPECT_EQ(graph.type(find_node(graph, "conv2d")->inputs[0]).dtype, DType::kFloat16);
  const Node& product = *find_node(graph, "matmul");
  EXPECT_EQ(product.inputs[1], graph.find("out/kernel"));
  const Node& crossing = graph.node(graph.value(product.inputs[0]).producer);
  EXPECT_EQ(crossing.op, "cast");
  EXPECT_EQ(graph.type(crossing.inputs[0]), (TensorType{DType::kFloat16, Shape{8, 8}}));
  EXPECT_EQ(graph.type(built.forward.predictions[0]).dtype, DType::kFloat32);
  EXPECT_EQ(count_op(graph, "cast"), 3);  // the pixels, conv's kernel, and the value that passes between the two dtypes
}

// A float32 layer must read pixels that were never rounded to float16.
TEST(Float32Layers, TheFirstLayerReadsTheInputInFloat32) {
  const Graph graph =
      build_graph(model_with({"conv"}), 8, Mode::kTrain, {{DType::kFloat32}, {DType::kInt32}, false}, kMixed).graph;
  EXPECT_EQ(find_node(graph, "conv2d")->inputs[0], graph.find("x:in"));
  EXPECT_EQ(graph.type(find_node(graph, "batch_norm_apply")->inputs[0]).dtype, DType::kFloat16);
}

TEST(Float32Layers, APatternThatNamesNoLayerIsAMistake) {
  ModelOptions options;
  options.float32_layers = {"out", "block5_*"};
  const auto model = Model::create(describe(network()), options);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, ErrorCode::kUsage);
  EXPECT_NE(model.error().what.find("block5_*"), std::string::npos);
  EXPECT_EQ(model.error().facts.at(0), "its layers: conv, norm, flat, out");
}

}  // namespace
}  // namespace plimsoll::engine
