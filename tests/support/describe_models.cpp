// Writes everything in described_cases.h as one JSON file for tests/keras/test_cpp_descriptions.py.
//
//   describe_models FILE
#include <cstdio>
#include <fstream>

#include "base/json.h"
#include "tests/support/described_cases.h"

namespace cases {
namespace {

using nlohmann::json;
using plimsoll::require;
using plimsoll::engine::json_object;

json all_cases() {
  json layers = json::array(), values = json::array(), models = json::object();
  for (const LayerCase& one : layer_cases()) {
    const Description model = require(functional(one.inputs, {one.layer(one.inputs)}));
    layers.push_back(json_object({{"keras", one.keras},
                                  {"class_name", one.layer.class_name()},
                                  {"named", !one.layer.name().empty()},
                                  {"model", json::parse(model.to_json())}}));
  }
  for (const auto& list : {initializer_cases(), training_cases()})
    for (const ValueCase& one : list)
      values.push_back(json_object({{"keras", one.keras}, {"json", json::parse(one.json)}}));
  for (const ModelCase& one : model_cases()) models[one.name] = json::parse(require(one.model).to_json());
  const Description compiled = require(
      require(two_inputs_two_outputs())
          .compile({.optimizer = optimizers::SGD(0.5),
                    .loss = {{"price", losses::MeanSquaredError()}, {"kind", losses::SparseCategoricalCrossentropy()}},
                    .loss_weights = {{"price", 0.5}, {"kind", 2}},
                    .metrics = {{"price", {"mae"}}, {"kind", {"accuracy"}}}}));
  return json_object({{"layers", layers},
                      {"values", values},
                      {"models", models},
                      {"compiled", json::parse(compiled.to_json())},
                      {"compile_config", json::parse(compiled.compile_json())}});
}

}  // namespace
}  // namespace cases

int main(int argc, char** argv) {
  if (argc != 2) return std::fputs("usage: describe_models FILE\n", stderr), 2;
  try {
    std::ofstream file(argv[1]);
    file << cases::all_cases().dump(1) << '\n';
    return file.flush() ? 0 : 1;
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "%s", error.what()), 1;
  }
}
