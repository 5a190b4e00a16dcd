// Optimizers as Keras writes them, their updates, and schedules compared with Keras's numbers.
#include <fmt/format.h>

#include <cmath>

#include "tests/model/support.h"

namespace plimsoll::engine {
namespace {

using nlohmann::json;

TEST(Schedule, AgreesWithKerasToFloat32Rounding) {
  for (const json& one : golden("schedules")) {
    Optimizer optimizer;
    optimizer.schedule = one["schedule"];
    ASSERT_EQ(check_schedule(optimizer.schedule), "");
    for (size_t i = 0; i < one["steps"].size(); ++i) {
      const double keras = one["rates"][i], rate = learning_rate_at(optimizer, one["steps"][i]);
      // The tolerance allows a few roundings of values up to 0.2, and the 100th power of a rounded base.
      EXPECT_NEAR(rate, keras, 0.2 * 0x1p-22 + std::abs(keras) * 100 * 0x1p-24)
          << one["schedule"].dump() << " step " << one["steps"][i];
    }
  }
}

TEST(Schedule, WhatIsWrongWithOneIsSaid) {
  EXPECT_NE(check_schedule({{"class_name", "MySchedule"}, {"config", json::object()}}), "");
  EXPECT_NE(check_schedule({{"class_name", "ExponentialDecay"},
                            {"config", {{"initial_learning_rate", 0.1}, {"decay_steps", 0}, {"decay_rate", 0.9}}}}),
            "");
  EXPECT_NE(check_schedule({{"class_name", "ExponentialDecay"},
                            {"config", {{"initial_learning_rate", 0.1}, {"decay_rate", 0.9}}}}),
            "");
  EXPECT_NE(
      check_schedule({{"class_name", "PiecewiseConstantDecay"}, {"config", {{"boundaries", {1}}, {"values", {1}}}}}),
      "");
}

Optimizer parsed(const json& config) {
  std::vector<std::string> unsupported;
  const Optimizer optimizer = parse_optimizer(config, unsupported);
  EXPECT_TRUE(unsupported.empty()) << unsupported.front();
  return optimizer;
}

TEST(Optimizer, NamesHaveKerasDefaults) {
  EXPECT_DOUBLE_EQ(parsed("sgd").learning_rate, 0.01);
  EXPECT_DOUBLE_EQ(parsed("Adam").learning_rate, 0.001);
  EXPECT_DOUBLE_EQ(parsed("adam").weight_decay, 0);
  EXPECT_DOUBLE_EQ(parsed("AdamW").weight_decay, 0.004);
  EXPECT_DOUBLE_EQ(parsed("muon").weight_decay, 0.004);
  EXPECT_DOUBLE_EQ(parsed("RMSprop").number("rho"), 0.9);
  EXPECT_DOUBLE_EQ(parsed("ScheduleFreeAdamW").number("epsilon"), 1e-8);
}

using Names = std::vector<std::string>;

Names state_of(const json& config) {
  Names names;
  for (const StateVariable& one : state_variables(parsed(config), {{"a", Shape{2, 3}}, {"b", Shape{3}}}))
    names.push_back(fmt::format("{} [{}]", one.value, to_text(one.shape)));
  return names;
}

TEST(Optimizer, StateHasTheOrderOfKerasFiles) {
  const auto with = [](const char* name, const json& config) -> json {
    return {{"class_name", name}, {"config", config}};
  };
  EXPECT_EQ(state_of("sgd"), Names{});
  EXPECT_EQ(state_of(with("SGD", {{"momentum", 0.9}})), (Names{"a/momentum [2,3]", "b/momentum [3]"}));
  EXPECT_EQ(state_of("adam"), (Names{"a/m [2,3]", "a/v [2,3]", "b/m [3]", "b/v [3]"}));
  EXPECT_EQ(state_of(with("Adam", {{"amsgrad", true}, {"use_ema", true}, {"gradient_accumulation_steps", 2}})),
            (Names{"a/average [2,3]", "b/average [3]", "a/gradient_accumulator [2,3]", "b/gradient_accumulator [3]",
                   "a/m [2,3]", "a/v [2,3]", "b/m [3]", "b/v [3]", "a/v_hat [2,3]", "b/v_hat [3]"}));
  EXPECT_EQ(state_of("nadam").back(), "optimizer/shared []");
  EXPECT_EQ(state_of("adafactor"), (Names{"a/r [2]", "a/c [3]", "a/v [2,3]", " []", " []", "b/v [3]"}));
  EXPECT_EQ(state_of("muon"), (Names{"a/m [2,3]", "b/m [3]", "b/v [3]"}));
  EXPECT_EQ(state_of(with("RMSprop", {{"momentum", 0.5}, {"centered", true}})),
            (Names{"a/v [2,3]", "b/v [3]", "a/momentum [2,3]", "b/momentum [3]", "a/average_gradient [2,3]",
                   "b/average_gradient [3]"}));
}

TEST(Optimizer, UnsupportedSettingsAreListed) {
  std::vector<std::string> unsupported;
  parse_optimizer(
      {{"class_name", "Adam"},
       {"config", {{"use_ema", true}, {"ema_momentum", 2}, {"other", 1}, {"learning_rate", {{"class_name", "Mine"}}}}}},
      unsupported);
  EXPECT_EQ(unsupported.size(), 3u);
  unsupported.clear();
  parse_optimizer("MultiOptimizer", unsupported);
  EXPECT_EQ(unsupported.size(), 1u);
  unsupported.clear();
  parse_optimizer({{"class_name", "SGD"}, {"config", {{"clipnorm", 1.0}, {"clipvalue", 1.0}}}}, unsupported);
  EXPECT_EQ(unsupported.size(), 1u);
}

Graph updates(const Optimizer& optimizer) {
  GraphBuilder b = make_builder();
  const TensorType type{DType::kFloat32, Shape{2, 3}};
  std::vector<TrainedWeight> weights;
  for (const char* name : {"a/kernel", "b/kernel", "c/kernel"})
    weights.push_back({b.persistent(name, type, Category::kWeights),
                       b.input(std::string("g:") + name, type, Category::kGradients, false), std::nullopt});
  weights[2].gradient = kNone;
  append_updates(b, optimizer, weights);
  EXPECT_TRUE(b.status()) << text_of(b.status().error());
  const Status good = verify(b.graph());
  EXPECT_TRUE(good) << text_of(good.error());
  return b.take();
}

TEST(Optimizer, AWeightWithoutAGradientIsLeftAlone) {
  const Graph graph = updates(parsed("adam"));
  EXPECT_EQ(count_op(graph, "adam"), 2);
  EXPECT_EQ(graph.updates.size(), 6u);
  EXPECT_NE(graph.find("a/kernel/m"), kNone);
  EXPECT_NE(graph.find("b/kernel/v"), kNone);
  EXPECT_EQ(graph.find("c/kernel/m"), kNone);
  EXPECT_EQ(graph.type(graph.find("iteration")), (TensorType{DType::kInt64, Shape{}}));
  EXPECT_EQ(graph.type(graph.find("learning_rate")), (TensorType{DType::kFloat32, Shape{}}));
}

TEST(Optimizer, ClippingComesFirst) {
  const auto sgd = [](const char* key) {
    return parsed({{"class_name", "SGD"},
                   {"config", {{key, 0.5}, {"momentum", 0.9}, {"nesterov", true}, {"weight_decay", 0.1}}}});
  };
  const Graph by_value = updates(sgd("clipvalue")), by_norm = updates(sgd("clipnorm")),
              by_all = updates(sgd("global_clipnorm"));
  EXPECT_EQ(count_op(by_value, "clip_value"), 2);
  EXPECT_EQ(count_op(by_norm, "clip_factor"), 2);
  EXPECT_EQ(count_op(by_all, "squared_norm"), 2);
  EXPECT_EQ(count_op(by_all, "clip_factor"), 1);
  EXPECT_EQ(count_op(by_all, "scale"), 2);
  const Node* step = find_node(by_norm, "sgd");
  EXPECT_EQ(by_norm.node(by_norm.value(step->inputs[1]).producer).op, "scale");
  EXPECT_DOUBLE_EQ(step->attrs.real("weight_decay"), 0.1);
  EXPECT_TRUE(step->attrs.flag("nesterov"));
  EXPECT_EQ(by_norm.value(step->inputs[3]).name, "a/kernel/momentum");
}

TEST(Optimizer, AZeroLimitIsNoLimit) {
  EXPECT_FALSE(parsed({{"class_name", "SGD"}, {"config", {{"clipnorm", 0.0}}}}).clipnorm);
}

}  // namespace
}  // namespace plimsoll::engine
