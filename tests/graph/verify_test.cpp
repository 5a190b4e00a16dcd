#include <gtest/gtest.h>

#include "graph/graph.h"
#include "ops/build.h"
#include "ops/op.h"

namespace plimsoll::engine {
namespace {

// A valid graph: x -> relu -> y, and w updated by w2.
Graph sound() {
  GraphBuilder b = make_builder();
  const ValueId x = b.input("x", {DType::kFloat32, Shape{2, 3}}, Category::kInputs, false);
  const ValueId w = b.persistent("w", {DType::kFloat32, Shape{3}}, Category::kWeights);
  b.output(b.add1("relu", {x}, {}, "y"));
  b.update(w, b.add1("affine", {w}, {{"scale", 0.5}, {"offset", 0.0}}, "w2"));
  return b.take();
}

void expect_refused(const Graph& graph, const std::string& message) {
  const Status status = verify(graph);
  ASSERT_FALSE(status) << "wanted: " << message;
  EXPECT_EQ(status.error().code, ErrorCode::kInternal);
  EXPECT_NE(status.error().what.find(message), std::string::npos) << status.error().what;
}

TEST(Verify, AcceptsASoundGraph) {
  EXPECT_TRUE(verify(sound()));
}

TEST(Verify, RefusesTwoValuesOfOneName) {
  Graph g = sound();
  g.values[2].name = "x";
  expect_refused(g, "two values are named %x");
}

TEST(Verify, RefusesReadingBeforeWriting) {
  Graph g = sound();
  std::swap(g.nodes[0], g.nodes[1]);
  g.value(g.find("y")).producer = 1;
  g.value(g.find("w2")).producer = 0;
  EXPECT_TRUE(verify(g));
  g.nodes[0].inputs[0] = g.find("y");
  expect_refused(g, "node 0 (affine) reads %y before it is written");
}

TEST(Verify, RefusesTwoWriters) {
  Graph g = sound();
  g.nodes[1].outputs[0] = g.nodes[0].outputs[0];
  expect_refused(g, "writes %y, which has a writer");
}

TEST(Verify, RefusesIdsOutOfRange) {
  Graph g = sound();
  g.nodes[0].inputs[0] = 99;
  expect_refused(g, "node 0 (relu) reads value 99");
  g = sound();
  g.outputs = {99};
  expect_refused(g, "output 99 is not one of 4 values");
}

TEST(Verify, RefusesAValueNobodyWrites) {
  Graph g = sound();
  g.inputs.erase(g.inputs.begin());
  expect_refused(g, "node 0 (relu) reads %x before it is written");
  g = sound();
  Value orphan;
  orphan.name = "orphan";
  g.values.push_back(orphan);
  expect_refused(g, "%orphan is neither an input nor written by a node");
}

TEST(Verify, RefusesBadUpdates) {
  Graph g = sound();
  g.updates[0].persistent = g.find("x");
  expect_refused(g, "update of %x, which is not persistent");
  g = sound();
  g.updates[0].value = g.find("y");
  expect_refused(g, "update of %w f32[3] by %y f32[2,3]");
  g = sound();
  g.updates.push_back(g.updates[0]);
  expect_refused(g, "%w is updated twice");
}

TEST(Verify, RefusesAWrongProducer) {
  Graph g = sound();
  g.value(g.find("y")).producer = 1;
  expect_refused(g, "%y is written by node 0 (relu), but its producer is node 1");
}

TEST(Verify, RefusesALayoutSmallerThanItsValue) {
  Graph g = sound();
  g.value(0).layout = "blocked";
  g.value(0).layout_bytes = 8;
  expect_refused(g, "%x of 24 bytes has layout 'blocked' of 8 bytes");
}

TEST(Verify, RefusesUnknownOpsAndWrongTypes) {
  Graph g = sound();
  g.nodes[0].op = "rleu";
  expect_refused(g, "there is no op 'rleu'");
  g = sound();
  g.value(g.find("y")).type.shape = Shape{3, 2};
  expect_refused(g, "relu has output %y of type f32[3,2], but the op infers f32[2,3]");
  g = sound();
  g.nodes[1].attrs = {};
  expect_refused(g, "affine: needs attribute scale (real); got f32[3]");
}

TEST(Verify, ChecksBodiesOfFusedNodes) {
  Graph g = sound();
  g.nodes[0].op = "fused";
  expect_refused(g, "only fused nodes may have a body");
  GraphBuilder body = make_builder();
  const ValueId x = body.input("x", {DType::kFloat32, Shape{2, 3}}, Category::kInputs, false);
  body.output(body.add1("relu", {x}));
  g.nodes[0].body = std::make_shared<const Graph>(body.take());
  EXPECT_TRUE(verify(g));
  GraphBuilder other = make_builder();
  const ValueId z = other.input("x", {DType::kFloat32, Shape{3, 2}}, Category::kInputs, false);
  other.output(other.add1("relu", {z}));
  g.nodes[0].body = std::make_shared<const Graph>(other.take());
  expect_refused(g, "fused node f32[2,3] -> f32[2,3] has a body f32[3,2] -> f32[3,2]");
}

TEST(Graph, ListsReadersInOrderAndOnce) {
  GraphBuilder b = make_builder();
  const ValueId x = b.input("x", {DType::kFloat32, Shape{2}}, Category::kInputs, false);
  const ValueId y = b.add1("add", {x, x});
  b.add1("add", {y, x});
  const auto readers = readers_of(b.graph());
  EXPECT_EQ(readers[static_cast<size_t>(x)], (std::vector<NodeId>{0, 1}));
  EXPECT_EQ(readers[static_cast<size_t>(y)], (std::vector<NodeId>{1}));
}

TEST(Graph, FindsValuesByName) {
  const Graph g = sound();
  EXPECT_EQ(g.value(g.find("w2")).name, "w2");
  EXPECT_EQ(g.find("nothing"), kNone);
}

}  // namespace
}  // namespace plimsoll::engine
