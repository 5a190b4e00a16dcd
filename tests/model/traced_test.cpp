// What the Python package writes for layers and losses in Python: weights, random numbers, rows. Any of it may be
// wrong.
#include "model/config.h"
#include "tests/model/support.h"

namespace plimsoll::engine {
namespace {

Json tensor(const std::string& layer, const Json& shape) {
  return {{"class_name", "__keras_tensor__"},
          {"config", {{"shape", shape}, {"dtype", "float32"}, {"keras_history", {layer, 0, 0}}}}};
}

Json node(const std::string& name, const std::string& class_name, const Json& config, const Json& args,
          const std::string& module = "plimsoll.traced") {
  return {{"module", module}, {"class_name", class_name},
          {"config", config}, {"registered_name", nullptr},
          {"name", name},     {"inbound_nodes", Json::array({{{"args", args}}})}};
}

// A model of an input x [4] and these layers; the last one is its output.
Json model_of(const std::vector<Json>& made) {
  Json x = layer_json("InputLayer", "x", {{"batch_shape", {nullptr, 4}}, {"dtype", "float32"}});
  x["inbound_nodes"] = Json::array();
  Json layers = Json::array({x});
  for (const Json& one : made) layers.push_back(one);
  return {{"module", "keras"},
          {"class_name", "Functional"},
          {"config",
           {{"name", "net"},
            {"layers", layers},
            {"input_layers", {{"x", 0, 0}}},
            {"output_layers", {{made.back()["name"], 0, 0}}}}},
          {"registered_name", nullptr}};
}

Result<Model> read(const std::vector<Json>& made) {
  return Model::create(describe(model_of(made)), untrained());
}

Json weights(const Json& list) {
  return node("own", "Weights", {{"name", "own"}, {"weights", list}}, Json::array());
}
Json operation(const std::string& name, const std::string& class_name, const Json& args, Json config = Json::object()) {
  config["name"] = name;
  return node(name, class_name, config, args, "keras.src.ops.numpy");
}
const Json kMatrix = {{"name", "w"}, {"shape", {4, 3}}};

TEST(Traced, OperationsReadWeightsAndFunctionsOfWeights) {
  const auto model = read({weights(Json::array({kMatrix})),
                           operation("total", "Sum", Json::array({tensor("own", {4, 3})}), {{"axis", 0}}),
                           operation("product", "Matmul", {tensor("x", {nullptr, 4}), tensor("own", {4, 3})}),
                           operation("out", "Add", {tensor("product", {nullptr, 3}), tensor("total", {3})})});
  ASSERT_TRUE(model) << text_of(model.error());
  ASSERT_EQ(model->weights().size(), 1U);
  EXPECT_EQ(model->weights()[0].name, "own/w");
  EXPECT_EQ(model->outputs()[0].sample, (Shape{3}));
}

TEST(Traced, AWeightIsNoOutputAndNoInputOfALayer) {
  EXPECT_FALSE(read({weights(Json::array({kMatrix}))}));
  EXPECT_FALSE(read({weights(Json::array({kMatrix})), operation("sum", "Sum", Json::array({tensor("own", {4, 3})}))}));
  Json relu = layer_json("ReLU", "relu", Json::object());
  relu["name"] = "relu";
  relu["inbound_nodes"] = Json::array({{{"args", Json::array({tensor("own", {4, 3})})}}});
  const auto read_by_layer = read({weights(Json::array({kMatrix})), relu});
  ASSERT_FALSE(read_by_layer);
  EXPECT_NE(read_by_layer.error().what.find("without a batch"), std::string::npos) << text_of(read_by_layer.error());
}

TEST(Traced, WrongWeightsAndNumbersAreRefused) {
  const Json x = tensor("x", {nullptr, 4});
  for (const Json& list :
       {Json(), Json::array(), Json(3), Json::array({3}), Json::array({Json::object()}), Json::array({{{"name", "w"}}}),
        Json::array({{{"name", "w"}, {"shape", {0}}}}), Json::array({{{"name", "w"}, {"shape", {-1, 2}}}}),
        Json::array({{{"name", "w"}, {"shape", {1LL << 40, 1LL << 40}}}}),
        Json::array({{{"name", ""}, {"shape", {2}}}}), Json::array({kMatrix, kMatrix})})
    EXPECT_FALSE(read({weights(list), operation("out", "Add", {x, tensor("own", {4})})})) << list;
  EXPECT_TRUE(read({node("out", "RandomNormal", {{"shape", {4}}}, Json::array())}));
  EXPECT_FALSE(read({node("out", "RandomNormal", {{"shape", {0}}}, Json::array())}));
  EXPECT_FALSE(read({node("out", "RandomNormal", {{"shape", "x"}}, Json::array())}));
  EXPECT_FALSE(read({node("out", "RandomNormal", {{"shape", {4}}}, Json::array({x}))}));
  EXPECT_TRUE(read({node("out", "Rows", Json::object(), Json::array({Json::array({Json::array({1, 2})})}))}));
  EXPECT_FALSE(read({node("out", "Rows", Json::object(), Json::array({1}))}));
  EXPECT_FALSE(read({node("out", "Rows", Json::object(), Json::array({x}))}));
  EXPECT_TRUE(read({node("out", "ByPhase", Json::object(), {x, x})}));
  EXPECT_FALSE(read({node("out", "ByPhase", Json::object(), {x, 2})}));
  EXPECT_FALSE(read({node("out", "Whatever", Json::object(), {x, x})}));
}

TEST(Traced, AScalarWeightBroadcasts) {
  const auto model = read({weights(Json::array({{{"name", "s"}, {"shape", Json::array()}}})),
                           operation("out", "Multiply", {tensor("x", {nullptr, 4}), tensor("own", Json::array())})});
  ASSERT_TRUE(model) << text_of(model.error());
  EXPECT_EQ(model->weights()[0].shape, Shape{});
}

TEST(Traced, ALossThatCannotBeComputedIsRefused) {
  for (const Json& config :
       {Json::object(), Json({{"model", 3}}), Json({{"model", Json::object()}, {"target", {4}}}),
        Json({{"model", model_of({operation("out", "Square", Json::array({tensor("x", {nullptr, 4})}))})},
              {"target", {4}}})}) {
    Description description =
        describe(model_of({operation("out", "Square", Json::array({tensor("x", {nullptr, 4})}))}));
    description.compile_config = {
        {"optimizer", "sgd"},
        {"loss", {{"module", "plimsoll.traced"}, {"class_name", "TracedLoss"}, {"config", config}}}};
    EXPECT_FALSE(Model::create(description, {})) << config;
  }
  Description named = describe(model_of({operation("out", "Square", Json::array({tensor("x", {nullptr, 4})}))}));
  named.compile_config = {{"optimizer", "sgd"}, {"loss", "TracedLoss"}, {"metrics", {"TracedLoss"}}};
  EXPECT_FALSE(Model::create(named, {}));
}

}  // namespace
}  // namespace plimsoll::engine
