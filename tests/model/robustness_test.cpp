// Creating a model must end in a model or an error, whatever the file contains. The tests remove each key of real files
// and give it other values.
#include <fmt/format.h>

#include <limits>

#include "tests/model/support.h"

namespace plimsoll::engine {
namespace {

using nlohmann::json;

void collect(const json& value, const json::json_pointer& at, std::vector<json::json_pointer>& places) {
  if (!at.empty()) places.push_back(at);
  if (value.is_object())
    for (const auto& [key, one] : value.items()) collect(one, at / key, places);
  else if (value.is_array())
    for (size_t i = 0; i < value.size(); ++i) collect(value[i], at / i, places);
}

// If a model was created, graphs can be built from it: no assert, no exception, errors only through the status.
void expect_an_answer(const json& config) {
  ModelOptions options;
  if (!config.is_object() || !config.contains("compile_config")) options = untrained();
  const auto model = Model::create(describe(config), options);
  if (!model) {
    EXPECT_FALSE(model.error().what.empty());
    EXPECT_NE(model.error().code, ErrorCode::kInternal) << text_of(model.error());
    return;
  }
  if (!model->check_batch(2)) return;
  const Built built = build_graph(*model, 2, options.needs_loss ? Mode::kTrain : Mode::kPredict);
  EXPECT_TRUE(built.status) << text_of(built.status.error()) << config.dump();
}

void mutate_everywhere(const json& config) {
  const std::vector<json> replacements = {nullptr,
                                          true,
                                          -1,
                                          0,
                                          3,
                                          1e300,
                                          "text",
                                          json::array(),
                                          json::object(),
                                          json::array({1, "a", nullptr}),
                                          std::numeric_limits<int64_t>::max(),
                                          std::numeric_limits<uint64_t>::max()};
  std::vector<json::json_pointer> places;
  collect(config, json::json_pointer(), places);
  for (const auto& place : places) {
    SCOPED_TRACE(place.to_string());
    json removed = config;
    json& parent = removed[place.parent_pointer()];
    if (parent.is_object())
      parent.erase(place.back());
    else
      parent.erase(static_cast<size_t>(std::stoul(place.back())));
    expect_an_answer(removed);
    for (const json& replacement : replacements) {
      json changed = config;
      changed[place] = replacement;
      expect_an_answer(changed);
    }
  }
}

TEST(Robustness, EveryKeyOfNestedModels) {
  const json list = golden("structures");
  for (const char* name : {"siamese", "nested_output", "sequential_in_sequential"})
    mutate_everywhere(fixture(list, name)["config"]);
}

TEST(Robustness, EveryKeyOfCompiledModels) {
  const json list = golden("compiled");
  for (const char* name : {"categorical", "two_dict", "two_list"}) mutate_everywhere(fixture(list, name)["config"]);
}

TEST(Robustness, EveryKeyOfEveryLayer) {
  for (const json& one : golden("layers")) mutate_everywhere(one["config"]);
}

TEST(Robustness, NoModelAtAll) {
  for (const json& config :
       {json(), json(3), json("Sequential"), json::array(), json::object(), json{{"class_name", "Sequential"}},
        json{{"class_name", "Sequential"}, {"config", {{"layers", {}}}}}})
    expect_an_answer(config);
}

TEST(Robustness, ModelsInModelsWithoutEnd) {
  json config = sequential_json({nullptr, 4}, {layer_json("ReLU", "r")});
  for (int i = 0; i < 100; ++i) {
    json outer = sequential_json({nullptr, 4}, {config});
    outer["config"]["name"] = fmt::format("net{}", i);
    config = outer;
  }
  expect_an_answer(config);
  EXPECT_FALSE(Model::create(describe(config), untrained()));
}

json tensor(const std::string& layer, int node) {
  return {{"class_name", "__keras_tensor__"},
          {"config", {{"shape", {nullptr, 4}}, {"dtype", "float32"}, {"keras_history", {layer, node, 0}}}}};
}

json functional(const std::string& name, json inner, int calls) {
  json nodes = json::array();
  nodes.push_back({{"args", {tensor("in", 0)}}, {"kwargs", json::object()}});
  inner["name"] = inner["config"]["name"];
  for (int i = 1; i < calls; ++i)
    nodes.push_back({{"args", {tensor(inner["name"], i - 1)}}, {"kwargs", json::object()}});
  inner["inbound_nodes"] = nodes;
  json input = layer_json("InputLayer", "in", {{"batch_shape", {nullptr, 4}}});
  input["inbound_nodes"] = json::array();
  const bool counted = inner["class_name"] == "Functional";
  return {{"class_name", "Functional"},
          {"config",
           {{"name", name},
            {"layers", {input, inner}},
            {"input_layers", {{"in", 0, 0}}},
            {"output_layers", {{inner["name"], calls - 1 + counted, 0}}}}}};
}

// A file of a few kilobytes that describes 2^20 calls.
TEST(Robustness, CallsThatMultiply) {
  json config = functional("m0", layer_json("ReLU", "r"), 2);
  for (int i = 1; i < 20; ++i) config = functional(fmt::format("m{}", i), config, 2);
  const auto model = Model::create(describe(config), untrained());
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, ErrorCode::kBadConfig);
}

TEST(Robustness, LoopsAreNamed) {
  json config = functional("m", layer_json("ReLU", "r"), 1);
  config["config"]["layers"][1]["inbound_nodes"][0]["args"][0] = tensor("r", 0);
  const auto model = Model::create(describe(config), untrained());
  ASSERT_FALSE(model);
  EXPECT_NE(model.error().what.find("form a loop"), std::string::npos) << text_of(model.error());
}

TEST(Robustness, CallsInTheOlderForm) {
  json config = functional("m", layer_json("ReLU", "r"), 1);
  config["config"]["layers"][1]["inbound_nodes"] =
      json::array({json::array({json::array({"in", 0, 0, {{"training", false}}})})});
  const auto model = Model::create(describe(config), untrained());
  EXPECT_TRUE(model) << text_of(model.error());
}

}  // namespace
}  // namespace plimsoll::engine
