// Folds the gradient of an embedding into its update: checks the resulting graphs, when the two nodes stay, that no
// number changes, and how much of the arena it saves.
#include <gtest/gtest.h>

#include "backends/cuda/cuda.h"
#include "lower/lower.h"
#include "tests/ops/harness.h"
#include "tests/support/fake_device.h"
#include "tests/support/one_phase.h"
#include "tests/support/refusing_device.h"

namespace plimsoll::engine::testing {
namespace {

// An embedding of 7 rows with Adam state. `nodes` update it from `dy`, which has this dtype.
std::string adam_graph(const std::string& dy, const std::string& nodes) {
  return fmt::format(R"(graph "g"
  %w = input f32[7,4] weights persistent
  %m = input f32[7,4] optimizer persistent
  %v = input f32[7,4] optimizer persistent
  %rate = input f32[] inputs persistent
  %iteration = input i64[] inputs persistent
  %dy = input {}[2,3,4] inputs
  %ids = input i32[2,3] inputs
  %other = input f32[7,4] inputs
{}  update %w <- %w2
  update %m <- %m2
  update %v <- %v2
)",
                     dy, nodes);
}

std::string adam_node(const std::string& op, const std::string& gradient) {
  return fmt::format(
      "  %w2, %m2, %v2 = {}(%w, {}, %m, %v, %rate, %iteration) {{beta_1=0.9, beta_2=0.999, epsilon=1e-07, "
      "weight_decay=0.004}} : f32[7,4] temporaries, f32[7,4] temporaries, f32[7,4] temporaries\n",
      op, gradient);
}

// `between` computes %g from %dtable, which has the dtype of dy.
std::string adam(const std::string& between, const std::string& dy = "f32") {
  return adam_graph(dy, fmt::format("  %dtable = embedding_grad(%dy, %ids) {{rows=7}} : {}[7,4] gradients\n", dy) +
                            between + adam_node("adam", "%g"));
}

std::string folded_adam(const std::string& dy) {
  return adam_graph(dy, adam_node("adam_rows", "%dy, %ids"));
}

// The update reads the gradient directly.
std::string plain_adam() {
  std::string text = adam("");
  for (size_t at = text.find("%dtable"); at != std::string::npos; at = text.find("%dtable")) text.replace(at, 7, "%g");
  return text;
}

TEST(FoldRowGradients, TakesTheGradientOfATableIntoItsUpdate) {
  const Graph folded = fold_row_gradients(graph_of(plain_adam()), FakeDevice());
  EXPECT_EQ(print(folded), folded_adam("f32"));
  EXPECT_TRUE(verify(folded));
}

TEST(FoldRowGradients, TakesDyAsItIsWhereTheGradientIsWidened) {
  const Graph folded = fold_row_gradients(
      graph_of(adam("  %g = cast(%dtable) {dtype=\"f32\"} : f32[7,4] gradients\n", "bf16")), FakeDevice());
  EXPECT_EQ(print(folded), folded_adam("bf16"));
  EXPECT_TRUE(verify(folded));
}

constexpr const char* kSgd = R"(graph "g"
  %w = input f32[7,4] weights persistent
  %state = input f32[7,4] optimizer persistent
  %rate = input f32[] inputs persistent
  %dy = input f16[5,4] inputs
  %ids = input i32[5] inputs
  %wide = cast(%dy) {dtype="f32"} : f32[5,4] gradients
  %g = embedding_grad(%wide, %ids) {rows=7} : f32[7,4] gradients
  %w2, %state2 = sgd(%w, %g, %rate, %state) {momentum=0.9, nesterov=true} : f32[7,4] temporaries, f32[7,4] temporaries
  update %w <- %w2
  update %state <- %state2
)";

// Like Keras's Embedding under a mixed policy: the embedding is f32, and its rows are rounded after they are read.
TEST(FoldRowGradients, TakesDyAsItIsWhereDyIsWidened) {
  const Graph folded = fold_row_gradients(graph_of(kSgd), FakeDevice());
  EXPECT_EQ(print(folded), R"(graph "g"
  %w = input f32[7,4] weights persistent
  %state = input f32[7,4] optimizer persistent
  %rate = input f32[] inputs persistent
  %dy = input f16[5,4] inputs
  %ids = input i32[5] inputs
  %w2, %state2 = sgd_rows(%w, %dy, %ids, %rate, %state) {momentum=0.9, nesterov=true} : f32[7,4] temporaries, f32[7,4] temporaries
  update %w <- %w2
  update %state <- %state2
)");
  EXPECT_TRUE(verify(folded));
}

TEST(FoldRowGradients, LeavesAWidenedDyThatSomebodyElseReads) {
  Graph graph = graph_of(kSgd);
  graph.outputs.push_back(graph.find("wide"));
  const Graph folded = fold_row_gradients(graph, FakeDevice());
  ASSERT_EQ(folded.nodes.size(), 2U) << print(folded);
  EXPECT_EQ(folded.nodes[1].op, "sgd_rows");
  EXPECT_EQ(folded.value(folded.nodes[1].inputs[1]).name, "wide");
}

// Clipping, a scaled loss, micro-batches and penalties each need the whole gradient.
TEST(FoldRowGradients, LeavesAGradientThatSomethingElseReadsOrChanges) {
  const std::string clipped = R"(  %norm = squared_norm(%dtable) : f32[] gradients
  %factor = clip_factor(%norm) {limit=1.0} : f32[] gradients
  %g = scale(%dtable, %factor) : f32[7,4] gradients
)";
  const std::string scaled = "  %g = unscale(%dtable, %rate) : f32[7,4] gradients\n";
  const std::string summed = "  %g = add(%dtable, %other) : f32[7,4] gradients\n";
  const std::string limited = "  %g = clip_value(%dtable) {limit=0.5} : f32[7,4] gradients\n";
  for (const std::string& between : {clipped, scaled, summed, limited}) {
    const Graph graph = graph_of(adam(between));
    EXPECT_EQ(print(fold_row_gradients(graph, FakeDevice())), print(graph));
  }
  Graph kept = graph_of(plain_adam());
  kept.outputs.push_back(kept.find("g"));
  EXPECT_EQ(print(fold_row_gradients(kept, FakeDevice())), print(kept));
  std::string counted = plain_adam();
  counted.insert(counted.find("  update"), "  %bad = count_not_finite(%g) : f32[] gradients\n");
  const Graph guarded = graph_of(counted + "  output %bad\n");
  EXPECT_EQ(print(fold_row_gradients(guarded, FakeDevice())), print(guarded));
}

TEST(FoldRowGradients, AsksTheDevice) {
  const FakeDevice device;
  const Graph graph = graph_of(plain_adam());
  EXPECT_EQ(print(fold_row_gradients(graph, RefusingDevice(device, "_rows"))), print(graph));
}

// The ids contain rows 2 and 5 twice, row 3 never, and 9, which is not a row.
TEST(FoldRowGradients, ChangesNoNumber) {
  const Graph graph = graph_of(in_f64(plain_adam())), folded = fold_row_gradients(graph, FakeDevice());
  ASSERT_EQ(folded.nodes.size(), 1U);
  std::vector<Tensor> inputs = draw_inputs(graph, "uniform");
  inputs[4].values = {3};
  inputs[6].values = {2, 5, 9, 5, 0, 2};
  const auto dense = run_by_reference(graph, inputs), by_rows = run_by_reference(folded, inputs);
  for (size_t i = 0; i < graph.updates.size(); ++i)
    EXPECT_EQ(by_rows[static_cast<size_t>(folded.updates[i].value)].values,
              dense[static_cast<size_t>(graph.updates[i].value)].values);
  const Tensor &w = inputs[0], &w2 = by_rows[static_cast<size_t>(folded.updates[0].value)];
  EXPECT_NE(w2.values[3 * 4], w.values[3 * 4]);  // its moments still decay
}

// An embedding of GPT-2's size, read 16,384 times per step and trained in mixed precision.
Plan planned(const std::string& update, const Device& device) {
  const Graph graph = graph_of(fmt::format(R"(graph "train"
  %w = input f32[50257,768] weights persistent
  %m = input f32[50257,768] optimizer persistent
  %v = input f32[50257,768] optimizer persistent
  %rate = input f32[] inputs persistent
  %iteration = input i64[] inputs persistent
  %ids = input i32[16,1024] inputs
  %y = embedding(%w, %ids) : f32[16,1024,768] activations
  %dy = tanh(%y) : f32[16,1024,768] gradients
  %g = embedding_grad(%dy, %ids) {{rows=50257}} : f32[50257,768] gradients
{}  update %w <- %w2
)",
                                           update));
  Plan plan = one_phase_plan(PhaseKind::kTrain, 16, require(lower(graph, device)));
  require(validate(plan));
  return plan;
}

TEST(FoldRowGradients, TakesTheGradientOutOfTheArenaOfAGpu) {
  const auto gpu = make_planned_gpu(require(cuda::card_from_profile("h200-141g")));
  const std::string adam_text =
      "  %w2, %m2, %v2 = adam(%w, %g, %m, %v, %rate, %iteration) {beta_1=0.9, beta_2=0.999, epsilon=1e-07} : "
      "f32[50257,768] temporaries, f32[50257,768] temporaries, f32[50257,768] temporaries\n"
      "  update %m <- %m2\n  update %v <- %v2\n";
  const std::string sgd_text = "  %w2 = sgd(%w, %g, %rate) : f32[50257,768] temporaries\n";
  constexpr Bytes kGradient = Bytes{50257} * 768 * 4;
  for (const std::string& update : {adam_text, sgd_text}) {
    const Plan by_rows = planned(update, gpu->device()),
               dense = planned(update, RefusingDevice(gpu->device(), "_rows"));
    EXPECT_EQ(by_rows.persistent_bytes, dense.persistent_bytes);
    EXPECT_GE(dense.arena_bytes - by_rows.arena_bytes, kGradient) << update;
    EXPECT_LT(by_rows.phases[0].seconds, dense.phases[0].seconds);
  }
  // Plain SGD reads and writes only the rows in the ids, at most a third of this embedding.
  const Plan adam_plan = planned(adam_text, gpu->device()), sgd_plan = planned(sgd_text, gpu->device());
  EXPECT_LT(sgd_plan.phases[0].seconds, 0.6 * adam_plan.phases[0].seconds);
}

}  // namespace
}  // namespace plimsoll::engine::testing
