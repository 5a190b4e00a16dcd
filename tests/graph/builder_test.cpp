#include "graph/builder.h"

#include <gtest/gtest.h>

#include "ops/build.h"
#include "ops/op.h"

namespace plimsoll::engine {
namespace {

TEST(Builder, TagsWhatIsAddedInAScopeAndNothingBehindIt) {
  GraphBuilder b = make_builder();
  const ValueId x = b.input("x", {DType::kFloat32, Shape{2}}, Category::kInputs, false);
  const auto tags_of_next = [&] {
    const ValueId y = b.add1("relu", {x});
    const Value& value = b.graph().value(y);
    const Node& node = b.graph().node(value.producer);
    EXPECT_EQ(value.layer, node.layer);
    return std::tuple(node.layer, value.category, node.stage);
  };
  const auto plain = std::tuple(std::string(), Category::kActivations, Stage::kForward);
  EXPECT_EQ(tags_of_next(), plain);
  {
    const auto layer = b.in_layer("a");
    {
      const auto backward = b.in_stage(Stage::kBackward, Category::kGradients);
      const auto other = b.in_layer("b");
      EXPECT_EQ(tags_of_next(), std::tuple("b", Category::kGradients, Stage::kBackward));
    }
    const auto temporaries = b.in_category(Category::kTemporaries);
    EXPECT_EQ(tags_of_next(), std::tuple("a", Category::kTemporaries, Stage::kForward));
  }
  EXPECT_EQ(tags_of_next(), plain);
}

TEST(CopyOfPersistent, IsACastOrAReorderOfOneInsideFusedNodesToo) {
  const auto graph = parse_graph(R"(graph "g"
  %w = input f32[4,4] weights persistent
  %x = input f32[4,4] inputs
  %half = cast(%w) {dtype="bf16"} : bf16[4,4] temporaries
  %moved = reorder(%half) {layout="ab"} : bf16[4,4] temporaries layout="ab" layout_bytes=32
  %cast, %both = fused(%x, %w) : bf16[4,4] temporaries, f32[4,4] activations
  {
    graph "fused"
      %a = input f32[4,4] inputs
      %b = input f32[4,4] weights
      %c = cast(%b) {dtype="bf16"} : bf16[4,4] temporaries
      %d = add(%a, %b) : f32[4,4] activations
      output %c
      output %d
  }
  %narrow = cast(%x) {dtype="bf16"} : bf16[4,4] temporaries
  %y = relu(%half) : bf16[4,4] temporaries
)");
  ASSERT_TRUE(graph) << to_text(graph.error());
  for (const char* name : {"w", "half", "moved", "cast"})
    EXPECT_TRUE(is_copy_of_persistent(*graph, graph->find(name))) << name;
  for (const char* name : {"x", "both", "narrow", "y"})
    EXPECT_FALSE(is_copy_of_persistent(*graph, graph->find(name))) << name;
}

}  // namespace
}  // namespace plimsoll::engine
