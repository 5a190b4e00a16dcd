#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "graph/graph.h"
#include "ops/build.h"
#include "ops/op.h"

namespace plimsoll::engine {
namespace {

const char* const kText = R"(graph "train"
  %x = input f32[32,28,28,1] inputs
  %dense/kernel = input f32[784,10] weights persistent layer="dense"
  %1 = reshape(%x) {shape=[32,784]} : f32[32,784] activations layer="flatten"
  %y, %index = max_pool2d(%x) {pads=[0,0,0,0], pool=[2,2], strides=[2,2]} : f32[32,14,14,1] activations, u8[32,14,14,1] activations
  %late = input f32[] inputs persistent
  %2 = scale(%dense/kernel, %late) : f32[784,10] gradients value_layer="dense" stage=backward
  output %y
  output %1
  update %dense/kernel <- %2
)";

TEST(GraphText, PrintsWhatItParsed) {
  const auto graph = parse_graph(kText);
  ASSERT_TRUE(graph) << to_text(graph.error());
  EXPECT_EQ(print(*graph), kText);
  EXPECT_TRUE(verify(*graph));
  EXPECT_EQ(graph->values.size(), 7u);
  EXPECT_EQ(graph->value(graph->find("2")).layer, "dense");
  EXPECT_EQ(graph->nodes[2].layer, "");
  EXPECT_EQ(graph->nodes[2].stage, Stage::kBackward);
  EXPECT_EQ(graph->nodes[1].stage, Stage::kForward);
  EXPECT_EQ(graph->inputs, (std::vector<ValueId>{0, 1, 5}));
}

TEST(GraphText, KeepsEveryKindOfAttribute) {
  Graph graph;
  graph.name = "all \"kinds\"\n\\";
  Value value;
  value.name = "my layer/kernel";
  value.layer = "tab\there";
  value.type.shape = Shape{3};
  graph.values.push_back(value);
  graph.inputs = {0};
  value.name = "y";
  value.producer = 0;
  value.layout = "ABc8b";
  value.layout_bytes = 64;
  graph.values.push_back(value);
  const double infinity = std::numeric_limits<double>::infinity();
  graph.nodes.push_back({"op",
                         {0},
                         {1},
                         {{"integer", int64_t{-3}},
                          {"largest", std::numeric_limits<int64_t>::max()},
                          {"real", 0.1},
                          {"whole", 3.0},
                          {"tiny", 4.9e-324},
                          {"huge", 1e300},
                          {"inf", infinity},
                          {"minus_inf", -infinity},
                          {"yes", true},
                          {"no", false},
                          {"text", "a,b} \"c\" \\ \x01"},
                          {"empty", ""},
                          {"list", std::vector<int64_t>{1, -2, 3}},
                          {"no_list", std::vector<int64_t>{}}},
                         "tab\there",
                         Stage::kUpdate,
                         nullptr});
  const std::string text = print(graph);
  const auto again = parse_graph(text);
  ASSERT_TRUE(again) << to_text(again.error()) << text;
  EXPECT_EQ(print(*again), text);
  EXPECT_EQ(again->name, graph.name);
  EXPECT_EQ(again->nodes[0].attrs, graph.nodes[0].attrs);
  EXPECT_EQ(again->value(0).name, "my layer/kernel");
  EXPECT_EQ(again->value(1).layout, "ABc8b");
  EXPECT_EQ(again->value(1).layout_bytes, 64);
}

TEST(GraphText, NotANumberSurvives) {
  const auto graph = parse_graph("graph \"g\"\n  %y = op() {v=nan} : f32[1] activations\n");
  ASSERT_TRUE(graph) << to_text(graph.error());
  EXPECT_TRUE(std::isnan(graph->nodes[0].attrs.real("v")));
}

TEST(GraphText, KeepsTheBodyOfAFusedNode) {
  const char* text = R"(graph "g"
  %x = input f32[4,3] inputs
  %b = input f32[3] weights persistent
  %y = fused(%x, %b) : f32[4,3] activations layer="dense"
  {
    graph "bias_relu"
      %0 = input f32[4,3] inputs
      %1 = input f32[3] weights
      %2 = bias_add(%0, %1) : f32[4,3] activations
      %3 = relu(%2) : f32[4,3] activations
      output %3
  }
  output %y
)";
  const auto graph = parse_graph(text);
  ASSERT_TRUE(graph) << to_text(graph.error());
  EXPECT_EQ(print(*graph), text);
  ASSERT_TRUE(graph->nodes[0].body);
  EXPECT_EQ(graph->nodes[0].body->nodes.size(), 2u);
  EXPECT_TRUE(verify(*graph));
}

struct Bad {
  const char* text;
  const char* message;
};

class BadText : public ::testing::TestWithParam<Bad> {};

TEST_P(BadText, IsRefusedWithItsLine) {
  const auto graph = parse_graph(GetParam().text);
  ASSERT_FALSE(graph);
  EXPECT_EQ(graph.error().code, ErrorCode::kBadPlan);
  EXPECT_NE(graph.error().what.find(GetParam().message), std::string::npos) << graph.error().what;
}

INSTANTIATE_TEST_SUITE_P(
    GraphText, BadText,
    ::testing::Values(
        Bad{"", "graph text is empty"}, Bad{"grph \"g\"", "line 1: expected 'graph', got 'grph \"g\"'"},
        Bad{"graph \"g", "line 1: expected '\"', got the end of the line"},
        Bad{"graph \"g\"\n\n  %x = input f33[2] inputs", "line 3: 'f33' is not a dtype"},
        Bad{"graph \"g\"\n  %x = input f32[0] inputs", "line 2: shape: every dimension must be positive, got [0]"},
        Bad{"graph \"g\"\n  %x = input f32[2] things", "line 2: 'things' is not a category"},
        Bad{"graph \"g\"\n  %x = input f32[2] inputs\n  %x = input f32[2] inputs", "line 3: %x is defined twice"},
        Bad{"graph \"g\"\n  %y = relu(%x) : f32[2] activations", "line 2: %x is read before it is written"},
        Bad{"graph \"g\"\n  %x = input f32[2] inputs\n  %y = relu(%x) {a=} : f32[2] activations",
            "line 3: expected an attribute's value, got '}"},
        Bad{"graph \"g\"\n  %y = op() {a=1, a=2} : f32[2] activations", "line 2: attribute 'a' is given twice"},
        Bad{"graph \"g\"\n  %y = op() {a=12x} : f32[2] activations", "expected an attribute's value, got '12x}"},
        Bad{"graph \"g\"\n  %x = input f32[2] inputs extra", "line 2: expected the end of the line, got 'extra'"},
        Bad{"graph \"g\"\n  output %x", "line 2: %x is read before it is written"},
        Bad{"graph \"g\"\n  {", "line 2: a body must follow a fused node"},
        Bad{"graph \"g\"\n  %y = fused() : f32[2] activations\n  {\n  graph \"b\"", "line 4: expected '}'"},
        Bad{"graph \"g\"\n  }", "line 2: expected a statement"}));

}  // namespace
}  // namespace plimsoll::engine
