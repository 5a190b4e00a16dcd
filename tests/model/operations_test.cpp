// Calls of keras.ops in a Functional file: their arguments, shapes and kinds, and files that are wrong on purpose.
#include "model/arguments.h"
#include "tests/model/support.h"

namespace plimsoll::engine {
namespace {

Json tensor(const std::string& layer, const std::string& dtype = "float32") {
  return {{"class_name", "__keras_tensor__"},
          {"config", {{"shape", {nullptr, 6, 4}}, {"dtype", dtype}, {"keras_history", {layer, 0, 0}}}}};
}

Json operation(const std::string& class_name, const Json& args, Json config = Json::object(),
               const Json& kwargs = Json::object(), const std::string& module = "keras.src.ops.numpy") {
  config["name"] = "op";
  return {{"module", module}, {"class_name", class_name},
          {"config", config}, {"registered_name", class_name},
          {"name", "op"},     {"inbound_nodes", Json::array({{{"args", args}, {"kwargs", kwargs}}})}};
}

// A model of two inputs, x [6,4] and ids [6,4], and one operation.
Json model_of(const Json& made) {
  Json x = layer_json("InputLayer", "x", {{"batch_shape", {nullptr, 6, 4}}, {"dtype", "float32"}});
  Json ids = layer_json("InputLayer", "ids", {{"batch_shape", {nullptr, 6, 4}}, {"dtype", "int32"}});
  x["inbound_nodes"] = ids["inbound_nodes"] = Json::array();
  return {{"module", "keras"},
          {"class_name", "Functional"},
          {"config",
           {{"name", "net"},
            {"layers", {x, ids, made}},
            {"input_layers", {{"x", 0, 0}, {"ids", 0, 0}}},
            {"output_layers", {{"op", 0, 0}}}}},
          {"registered_name", nullptr}};
}

Result<Model> read(const Json& made) {
  return Model::create(describe(model_of(made)), untrained());
}

Json slice_json(const Json& start, const Json& stop, const Json& step) {
  return {{"class_name", "__slice__"}, {"config", {{"start", start}, {"stop", stop}, {"step", step}}}};
}
Json array_json(const Json& value, const std::string& dtype = "float32") {
  return {{"class_name", "__numpy__"}, {"config", {{"value", value}, {"dtype", dtype}}}};
}
const Json kAll = slice_json(nullptr, nullptr, nullptr);

TEST(Operations, ArgumentsAreReadByPositionAndByName) {
  const std::vector<Json> calls = {
      operation("Add", {tensor("x"), 1}),
      operation("Add", {2.5, tensor("x")}),
      operation("Add", {tensor("x"), tensor("x")}),
      operation("Add", {tensor("x"), array_json({1.0, 2.0, 3.0, 4.0})}),
      operation("Add", Json::array({tensor("x")}), Json::object(), {{"x2", tensor("ids", "int32")}}),
      operation("Add", Json::array(), Json::object(), {{"x1", tensor("x")}, {"x2", {1, 2, 3, 4}}}),
  };
  for (const Json& call : calls) {
    const auto model = read(call);
    ASSERT_TRUE(model) << call << text_of(model.error());
    EXPECT_EQ(model->outputs()[0].sample, (Shape{6, 4}));
    const Built built = build_graph(*model, 5, Mode::kPredict);
    EXPECT_TRUE(built.status) << text_of(built.status.error());
  }
}

TEST(Operations, SlicesFollowPython) {
  const std::vector<std::pair<Json, Shape>> cases = {
      {{kAll, slice_json(1, nullptr, nullptr)}, {5, 4}},
      {{kAll, -1}, {4}},
      {{kAll, nullptr, slice_json(0, 3, nullptr)}, {1, 3, 4}},
      {{kAll, 2, 3}, {}},
      {{{{"class_name", "__ellipsis__"}, {"config", Json::object()}}, slice_json(3, nullptr, nullptr)}, {6, 1}},
  };
  for (const auto& [key, want] : cases) {
    const auto model = read(operation("GetItem", {tensor("x"), key}));
    ASSERT_TRUE(model) << key << text_of(model.error());
    EXPECT_EQ(model->outputs()[0].sample, want) << key;
  }
}

TEST(Operations, IntegersStayIntegersInHalfPrecision) {
  const auto model = read(operation("Multiply", {tensor("ids", "int32"), 3}));
  ASSERT_TRUE(model) << text_of(model.error());
  GraphBuilder b = make_builder();
  model->build(b, 5, Precision(DType::kFloat32, DType::kBFloat16), Mode::kPredict,
               {{DType::kFloat32, DType::kInt32}, {}, false});
  ASSERT_TRUE(b.status()) << text_of(b.status().error());
  for (const Node& node : b.graph().nodes) {
    if (node.layer != "op") continue;
    for (ValueId id : node.outputs) EXPECT_FALSE(is_half(b.graph().type(id).dtype)) << node.op;
  }
}

TEST(Operations, IntegersPassThroughLayersThatOnlyMoveThem) {
  Json ids = layer_json("InputLayer", "ids", {{"batch_shape", {nullptr, 6, 4}}, {"dtype", "int32"}});
  ids["inbound_nodes"] = Json::array();
  Json flat = layer_json("Flatten", "flat");
  flat["inbound_nodes"] = Json::array({{{"args", {tensor("ids", "int32")}}, {"kwargs", Json::object()}}});
  const Json hot = operation("OneHot", Json::array({tensor("flat", "int32")}), {{"num_classes", 9}}, Json::object(),
                             "keras.src.ops.nn");
  const Json config = {{"module", "keras"},
                       {"class_name", "Functional"},
                       {"config",
                        {{"name", "net"},
                         {"layers", {ids, flat, hot}},
                         {"input_layers", {{"ids", 0, 0}}},
                         {"output_layers", {{"op", 0, 0}}}}},
                       {"registered_name", nullptr}};
  const auto model = Model::create(describe(config), untrained());
  ASSERT_TRUE(model) << text_of(model.error());
  EXPECT_EQ(model->outputs()[0].sample, (Shape{24, 9}));
  GraphBuilder b = make_builder();
  model->build(b, 5, Precision(DType::kFloat32, DType::kBFloat16), Mode::kPredict, {{DType::kInt32}, {}, false});
  ASSERT_TRUE(b.status()) << text_of(b.status().error());
  for (const Node& node : b.graph().nodes)
    for (ValueId id : node.outputs) EXPECT_FALSE(is_half(b.graph().type(id).dtype)) << node.op;
}

// Every one of these fails with a message, and none of them throws or runs out of anything.
TEST(Operations, WrongCallsFailWithAMessage) {
  Json deep = 1;
  for (int i = 0; i < 100; ++i) deep = Json::array({deep});
  const int64_t huge = int64_t{1} << 62;
  const std::vector<Json> calls = {
      operation("Add", Json::array({tensor("x")})),
      operation("Add", {tensor("x"), "text"}),
      operation("Add", {tensor("x"), deep}),
      operation("Add", {tensor("x"), {{1, 2}, {3}}}),
      operation("Add", {tensor("x"), {{"tensor", 7}}}),
      operation("Add", {tensor("x"), huge}),
      operation("Add", {tensor("x"), array_json({1.0, 2.0, 3.0})}),
      operation("Add", {tensor("x"), Json::array()}),
      operation("Add", {tensor("x"), 1, 2}),
      operation("Add", {tensor("nobody"), 1}),
      operation("Add", {1, 2}),
      operation("Reshape", Json::array({tensor("x")}), {{"newshape", {-1, 5}}}),
      operation("Reshape", Json::array({tensor("x")}), {{"newshape", {-1, huge, huge}}}),
      operation("Reshape", Json::array({tensor("x")}), {{"newshape", "all"}}),
      operation("Reshape", Json::array({tensor("x")})),
      operation("Sum", Json::array({tensor("x")}), {{"axis", 3}}),
      operation("Sum", Json::array({tensor("x")}), {{"axis", {1, 1}}}),
      operation("Sum", Json::array({tensor("x")}), {{"axis", 0}}),
      operation("Sum", Json::array({tensor("x")}), {{"axis", "first"}}),
      operation("Tile", Json::array({tensor("x")}), {{"repeats", {1, huge, 1}}}),
      operation("Tile", Json::array({tensor("x")}), {{"repeats", {1, 0, 1}}}),
      operation("Repeat", Json::array({tensor("x")}), {{"repeats", huge}, {"axis", 1}}),
      operation("Repeat", Json::array({tensor("x")}), {{"repeats", {1, 2}}, {"axis", 1}}),
      operation("Roll", Json::array({tensor("x")}), {{"shift", {1, 2, 3}}, {"axis", {1, 2}}}),
      operation("GetItem", {tensor("x"), {kAll, 6}}),
      operation("GetItem", {tensor("x"), {kAll, kAll, kAll, 1}}),
      operation("GetItem", {tensor("x"), {kAll, slice_json(0, 4, 0)}}),
      operation("GetItem", {tensor("x"), {kAll, slice_json(4, 4, 1)}}),
      operation("GetItem", {tensor("x"), {kAll, slice_json(-huge, huge, -huge)}}),
      operation("GetItem", {tensor("x"), {0}}),
      operation("GetItem", {tensor("x"), {kAll, tensor("ids", "int32")}}),
      operation("Concatenate", Json::array({Json::array()}), {{"axis", 1}}),
      operation("Concatenate", Json::array({Json::array({tensor("x"), 1})}), {{"axis", 1}}),
      operation("Stack", Json::array({Json::array({tensor("x"), tensor("x")})}), {{"axis", 9}}),
      operation("Split", Json::array({tensor("x")}), {{"indices_or_sections", {9}}, {"axis", 1}}),
      operation("Split", Json::array({tensor("x")}), {{"indices_or_sections", huge}, {"axis", 1}}),
      operation("Take", {tensor("x"), {9}}, {{"axis", 1}}),
      operation("Einsum", {tensor("x"), tensor("x")}, {{"subscripts", "bij,bjk->bik"}}),
      operation("Einsum", {tensor("x"), tensor("x")}, {{"subscripts", "bii->b"}}),
      operation("Einsum", Json::array({tensor("x")}), {{"subscripts", "b(j->"}}),
      operation("Matmul", {tensor("x"), tensor("x")}),
      operation("Moveaxis", Json::array({tensor("x")}), {{"source", {1, 1}}, {"destination", {2, 2}}}),
      operation("Moveaxis", Json::array({tensor("x")}), {{"source", {1}}, {"destination", {1, 2}}}),
      operation("ExpandDims", Json::array({tensor("x")}), {{"axis", {1, 1, 1}}}),
      operation("Squeeze", Json::array({tensor("x")}), {{"axis", 1}}),
      operation("Transpose", Json::array({tensor("x")}), {{"axes", {0, 1}}}),
      operation("Transpose", Json::array({tensor("x")}), {{"axes", Json::array()}}),
      operation("Pad", Json::array({tensor("x")}), {{"pad_width", {{0, 0}, {-1, 0}, {0, 0}}}}),
      operation("Pad", Json::array({tensor("x")}), {{"pad_width", {{0, 0}, {huge, 0}, {0, 0}}}}),
      operation("OneHot", Json::array({tensor("ids", "int32")}), {{"num_classes", huge}}),
      operation("Cast", Json::array({tensor("x")}), {{"dtype", "complex64"}}, Json::object(), "keras.src.ops.core"),
      operation("Unstack", Json::array({tensor("x")}), {{"num", 7}, {"axis", 1}}, Json::object(), "keras.src.ops.core"),
      operation("TopK", Json::array({tensor("x")}), {{"k", 9}}, Json::object(), "keras.src.ops.math"),
      operation("MaxPool", Json::array({tensor("x")}), {{"pool_size", 99}}, Json::object(), "keras.src.ops.nn"),
  };
  for (const Json& call : calls) {
    const auto model = read(call);
    ASSERT_FALSE(model) << call;
    EXPECT_NE(model.error().code, ErrorCode::kInternal) << call << text_of(model.error());
    EXPECT_FALSE(model.error().what.empty()) << call;
  }
}

TEST(Operations, ConstantsAreReadWithTheirTypes) {
  const auto one = read_constant(2);
  ASSERT_TRUE(one);
  EXPECT_TRUE(one->weak);
  EXPECT_EQ(one->type, Constant::Type::kInteger);
  const auto matrix = read_constant(array_json({{1, 2, 3}, {4, 5, 6}}));
  ASSERT_TRUE(matrix);
  EXPECT_EQ(matrix->shape, (Shape{2, 3}));
  EXPECT_EQ(matrix->type, Constant::Type::kFloat);
  EXPECT_EQ(matrix->values, (std::vector<double>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(read_constant({true, false})->type, Constant::Type::kTruth);
  EXPECT_FALSE(read_constant({{1, 2}, {3}}));
  EXPECT_FALSE(read_constant(std::vector<int>(70'000, 1)));
}

}  // namespace
}  // namespace plimsoll::engine
