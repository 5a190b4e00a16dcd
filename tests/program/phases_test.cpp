// The phases of a model's program.
#include "program/phases.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ops/op.h"

namespace plimsoll::engine {
namespace {

nlohmann::json layer(const char* class_name, nlohmann::json config) {
  config["trainable"] = config.value("trainable", true);
  return {{"module", "keras.layers"}, {"class_name", class_name}, {"config", config}, {"registered_name", nullptr}};
}

// Two dense layers, the first frozen or not, with an L2 penalty on the second.
Model model_of(bool frozen) {
  const nlohmann::json penalty = {
      {"module", "keras.regularizers"}, {"class_name", "L2"}, {"config", {{"l2", 0.01}}}, {"registered_name", nullptr}};
  Description description;
  description.config = {
      {"module", "keras"},
      {"class_name", "Sequential"},
      {"config",
       {{"name", "m"},
        {"layers",
         {layer("InputLayer", {{"batch_shape", {nullptr, 4}}, {"dtype", "float32"}, {"name", "in"}}),
          layer("Dense", {{"name", "a"}, {"units", 5}, {"activation", "tanh"}, {"trainable", !frozen}}),
          layer("Dense", {{"name", "b"}, {"units", 3}, {"kernel_regularizer", penalty}})}}}},
      {"registered_name", nullptr}};
  description.compile_config = {{"optimizer", "adam"}, {"loss", "mse"}, {"metrics", {"mae"}}};
  return require(Model::create(description, {}));
}

GraphOptions options_of() {
  GraphOptions options;
  options.data.inputs = options.data.targets = {DType::kFloat32};
  return options;
}

std::vector<std::string> updated(const Graph& graph) {
  std::vector<std::string> names;
  for (const Update& update : graph.updates) names.push_back(graph.value(update.persistent).name);
  std::sort(names.begin(), names.end());
  return names;
}
bool mentions(const std::vector<std::string>& names, const std::string& part) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return name.find(part) != std::string::npos; });
}

TEST(Program, EveryPhaseIsAGraphThatTheOpsAgreeWith) {
  const Model model = model_of(false);
  const GraphOptions options = options_of();
  for (const auto& phase :
       {train_phase(model, 6, options), begin_phase(model, options), accumulate_phase(model, 2, options),
        apply_phase(model, options), evaluate_phase(model, 6, options), predict_phase(model, 6, options)}) {
    ASSERT_TRUE(phase) << to_text(phase.error());
    EXPECT_TRUE(verify(phase->graph)) << print(phase->graph);
    EXPECT_EQ(print(require(parse_graph(print(phase->graph)))), print(phase->graph));
  }
}

TEST(Program, TrainingUpdatesWeightsAndMomentsAndTallies) {
  const auto names = updated(require(train_phase(model_of(false), 6, options_of())).graph);
  for (const char* name :
       {"a/kernel", "a/bias", "b/kernel", "b/bias", "a/kernel/m", "a/kernel/v", "tally:loss", "tally:mae"})
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
}

TEST(Program, AFrozenLayerHasNoStateNoGradientAndNoUpdate) {
  const Model model = model_of(true);
  const GraphOptions options = options_of();
  for (const auto& phase : {train_phase(model, 6, options), begin_phase(model, options),
                            accumulate_phase(model, 2, options), apply_phase(model, options)}) {
    EXPECT_FALSE(mentions(updated(phase->graph), "a/kernel")) << to_text(phase->name);
    EXPECT_EQ(phase->graph.find("a/kernel/m"), kNone) << to_text(phase->name);
    EXPECT_EQ(phase->graph.find("accumulated:a/kernel"), kNone) << to_text(phase->name);
    for (const Node& node : phase->graph.nodes) EXPECT_NE(node.op, "tanh_grad") << to_text(phase->name);
  }
}

// Regularization is applied once per window, with the updates, not with each micro-batch.
TEST(Program, PenaltiesStandInApplyAndNotInAccumulate) {
  const Model model = model_of(false);
  const auto count = [](const Graph& graph, const char* op) {
    return std::count_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) { return node.op == op; });
  };
  const Graph accumulate = require(accumulate_phase(model, 2, options_of())).graph,
              apply = require(apply_phase(model, options_of())).graph;
  EXPECT_EQ(count(accumulate, "l1_l2_penalty") + count(accumulate, "l1_l2_grad"), 0);
  EXPECT_EQ(count(apply, "l1_l2_grad"), 1);
  EXPECT_EQ(count(require(train_phase(model, 6, options_of())).graph, "l1_l2_grad"), 1);
}

TEST(Program, BeginClearsExactlyWhatAccumulateAddsTo) {
  const Model model = model_of(false);
  const auto cleared = updated(require(begin_phase(model, options_of())).graph);
  const auto added = updated(require(accumulate_phase(model, 2, options_of())).graph);
  EXPECT_EQ(cleared, added);
}

TEST(Program, NamesOfPhasesReadBackAsThemselves) {
  for (const PhaseKind kind : {PhaseKind::kTrain, PhaseKind::kBegin, PhaseKind::kAccumulate, PhaseKind::kApply,
                               PhaseKind::kEvaluate, PhaseKind::kPredict})
    for (const bool tail : {false, true}) EXPECT_EQ(phase_from_text(to_text({kind, tail})), (PhaseName{kind, tail}));
  for (const char* text : {"", "_tail", "train_tail_tail", "training", "Train"})
    EXPECT_FALSE(phase_from_text(text)) << text;
}

}  // namespace
}  // namespace plimsoll::engine
