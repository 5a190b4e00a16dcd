// The lever chunk-logits: the same losses, metrics and gradients, and no logits of all rows.
#include "levers/chunk_logits.h"

#include <gtest/gtest.h>

#include "autodiff/gradient.h"
#include "tests/ops/harness.h"

namespace plimsoll::engine::testing {
namespace {

constexpr int64_t kSentences = 3, kWords = 7, kPositions = kSentences * kWords, kFeatures = 3;

struct Vocabulary {
  const char* name;
  bool bias = true, softmax = false;
  DType dtype = DType::kFloat64;
};

// Positions [samples, steps, width], a Dense layer over the vocabulary, a metric, and the weighted loss with its
// gradients, as the model builds them.
Graph language_model(const Vocabulary& c, bool keep_logits = false) {
  GraphBuilder b = make_builder();
  const auto input = [&](const char* name, TensorType type) {
    return b.input(name, std::move(type), Category::kInputs, false);
  };
  const ValueId x = input("x", {c.dtype, Shape{kSentences, kWords, kFeatures}});
  std::vector<ValueId> trained = {x, input("w", {c.dtype, Shape{kFeatures, kLeastVocabulary}})};
  const ValueId labels = input("y", {DType::kInt32, Shape{kPositions}});
  const ValueId scale = input("scale", {wide(c.dtype), Shape{}});
  ValueId logits = b.add1("matmul", {b.add1("reshape", {x}, {{"shape", AttrList{kPositions, kFeatures}}}), trained[1]});
  if (c.bias) {
    trained.push_back(input("b", {c.dtype, Shape{kLeastVocabulary}}));
    logits = b.add1("bias_add", {logits, trained.back()});
  }
  logits = b.add1("reshape", {logits}, {{"shape", AttrList{kSentences, kWords, kLeastVocabulary}}});
  const ValueId compared = c.softmax ? b.add1("softmax", {logits}) : logits;
  b.output(b.add1("match", {compared, labels}, {{"kind", std::string("sparse")}}));
  const ValueId losses = b.add1("softmax_cross_entropy", {logits, labels}, {{"sparse", true}});
  const ValueId loss = b.add1("weighted_sum", {losses, scale}, {{"weighted", false}});
  b.output(loss);
  for (const ValueId id : append_gradients(b, loss, trained)) b.output(id);
  if (keep_logits) b.output(logits);
  EXPECT_TRUE(b.status()) << to_text(b.status().error());
  return b.take();
}

std::vector<Tensor> computed_by(const Graph& graph) {
  const auto values = run_by_reference(graph, draw_inputs(graph, "uniform"));
  std::vector<Tensor> outputs;
  for (const ValueId id : graph.outputs) outputs.push_back(values[static_cast<size_t>(id)]);
  return outputs;
}

int64_t most_rows_of_logits(const Graph& graph) {
  int64_t most = 0;
  for (const Node& node : graph.nodes)
    for (const ValueId id : node.outputs)
      if (const Shape& shape = graph.type(id).shape;
          shape.rank() >= 2 && shape.back() == kLeastVocabulary && shape != Shape{kFeatures, kLeastVocabulary})
        most = std::max(most, shape.elements() / kLeastVocabulary);
  return most;
}

TEST(ChunkLogits, GivesTheLossMetricAndGradientsOfTheWholeLogits) {
  for (const Vocabulary& c : {Vocabulary{"plain"}, Vocabulary{"no_bias", false}, Vocabulary{"softmax", true, true}})
    for (const int64_t chunks : {2, 4, 21, 64}) {
      const Graph graph = language_model(c);
      const Rewritten made = chunk_logits(graph, chunks);
      EXPECT_EQ(made.count, std::min(chunks, kPositions)) << c.name;
      const Status status = verify(made.graph);
      ASSERT_TRUE(status) << to_text(status.error());
      EXPECT_EQ(most_rows_of_logits(graph), kPositions);
      EXPECT_EQ(most_rows_of_logits(made.graph), (kPositions + made.count - 1) / made.count) << c.name;
      const auto wanted = computed_by(graph), got = computed_by(made.graph);
      ASSERT_EQ(got.size(), wanted.size());
      for (size_t i = 0; i < got.size(); ++i) EXPECT_LE(error_in_units(got[i], wanted[i]), 1e-3) << c.name << i;
    }
}

TEST(ChunkLogits, AddsUpGradientsInHalfPrecisionInFloat32) {
  const Rewritten made = chunk_logits(language_model({"half", true, false, DType::kBFloat16}), 4);
  EXPECT_EQ(made.count, 4);
  ASSERT_TRUE(verify(made.graph));
  for (const Node& node : made.graph.nodes)
    if (node.op == "add") {
      EXPECT_EQ(made.graph.type(node.outputs[0]).dtype, DType::kFloat32);
    }
}

TEST(ChunkLogits, KeepsLogitsThatAreAnOutput) {
  const Graph graph = language_model({"plain"}, true);
  const Rewritten made = chunk_logits(graph, 4);
  EXPECT_EQ(made.count, 0);
  EXPECT_EQ(print(made.graph), print(graph));
}

// The gradient of this loss is scaled by the loss itself, which is known only after the last chunk.
TEST(ChunkLogits, KeepsLogitsWhoseGradientNeedsAllLosses) {
  GraphBuilder b = make_builder();
  const auto input = [&](const char* name, TensorType type) {
    return b.input(name, std::move(type), Category::kInputs, false);
  };
  const ValueId x = input("x", {DType::kFloat64, Shape{kPositions, kFeatures}}),
                w = input("w", {DType::kFloat64, Shape{kFeatures, kLeastVocabulary}}),
                labels = input("y", {DType::kInt32, Shape{kPositions}});
  const ValueId losses = b.add1("softmax_cross_entropy", {b.add1("matmul", {x, w}), labels}, {{"sparse", true}});
  const ValueId loss = b.add1("l1_l2_penalty", {losses}, {{"l1", 0.0}, {"l2", 1.0}});
  for (const ValueId id : append_gradients(b, loss, std::vector<ValueId>{x, w})) b.output(id);
  ASSERT_TRUE(b.status());
  EXPECT_EQ(chunk_logits(b.take(), 4).count, 0);
}

}  // namespace
}  // namespace plimsoll::engine::testing
