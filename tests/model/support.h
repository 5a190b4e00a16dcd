// Shared by the tests of model/: fixtures written by Keras, and models made from them.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/model.h"
#include "ops/build.h"
#include "ops/op.h"

namespace plimsoll::engine {

inline nlohmann::json golden(const std::string& name) {
  std::ifstream file(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/golden/model/" + name + ".json");
  EXPECT_TRUE(file.good()) << name;
  return nlohmann::json::parse(file);
}

inline Description describe(nlohmann::json config) {
  Description description;
  if (config.is_object() && config.contains("compile_config")) {
    description.compile_config = config["compile_config"];
    config.erase("compile_config");
  }
  description.config = std::move(config);
  return description;
}

inline ModelOptions untrained() {
  ModelOptions options;
  options.needs_training = options.needs_loss = false;
  return options;
}

inline const nlohmann::json& fixture(const nlohmann::json& list, const std::string& name) {
  for (const auto& one : list)
    if (one["name"] == name) return one;
  ADD_FAILURE() << "no fixture " << name;
  return list[0];
}

inline std::string text_of(const Error& error) {
  return to_text(error);
}

// Returns a layer's JSON as Keras writes it. Omitted keys have Keras's defaults.
inline nlohmann::json layer_json(const std::string& class_name, const std::string& name,
                                 nlohmann::json config = nlohmann::json::object()) {
  config["name"] = name;
  return {{"module", "keras.layers"}, {"class_name", class_name}, {"config", config}, {"registered_name", nullptr}};
}

inline nlohmann::json sequential_json(nlohmann::json batch_shape, std::vector<nlohmann::json> layers) {
  nlohmann::json list = nlohmann::json::array();
  list.push_back(layer_json("InputLayer", "in", {{"batch_shape", std::move(batch_shape)}, {"dtype", "float32"}}));
  for (auto& layer : layers) list.push_back(std::move(layer));
  return {{"module", "keras"},
          {"class_name", "Sequential"},
          {"config", {{"name", "net"}, {"layers", list}}},
          {"registered_name", nullptr}};
}

struct Built {
  Graph graph;
  Forward forward;
  Status status;
};

inline Built build_graph(const Model& model, int64_t batch, Mode mode, const DataTypes& data = {},
                         const Precision& precision = DType::kFloat32) {
  GraphBuilder b = make_builder();
  Built built;
  built.forward = model.build(b, batch, precision, mode, data);
  built.status = b.status();
  built.graph = b.take();
  return built;
}

inline int count_op(const Graph& graph, const std::string& op) {
  int n = 0;
  for (const Node& node : graph.nodes) n += node.op == op;
  return n;
}

inline const Node* find_node(const Graph& graph, const std::string& op) {
  for (const Node& node : graph.nodes)
    if (node.op == op) return &node;
  return nullptr;
}

}  // namespace plimsoll::engine
