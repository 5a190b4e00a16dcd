// Parses a Keras architecture in JSON, creates a model from it, and builds its training graph.
#include "formats/keras/archive.h"
#include "model/model.h"
#include "ops/build.h"
#include "ops/op.h"
#include "tests/fuzz/fuzz.h"

namespace plimsoll::engine::fuzz {
namespace {

void build_graph(const Model& model) {
  constexpr int64_t kBatch = 2;
  if (!model.check_batch(kBatch)) return;
  DataTypes types;
  for (const Port& input : model.inputs()) types.inputs.push_back(input.dtype);
  for (const Port& output : model.outputs())
    types.targets.push_back(output.sparse_labels ? DType::kInt32 : DType::kFloat32);
  GraphBuilder builder = make_builder();
  model.build(builder, kBatch, Precision(), Mode::kTrain, types);
  if (!builder.status()) return;
  if (const Status valid = verify(builder.graph()); !valid) found(to_text(valid.error()));
}

void run(Input input) {
  const InputFile file(input);
  const auto archive = open_keras(file.path());
  check_error(archive);
  if (!archive) return;
  Description description{archive->config, nlohmann::json()};
  if (archive->config.is_object() && archive->config.contains("compile_config"))
    description.compile_config = archive->config.at("compile_config");
  ModelOptions options;
  if (!description.compile_config.is_object()) {
    options.optimizer = "adam";
    options.loss = "mse";
  }
  const auto model = Model::create(description, options);
  check_error(model);
  if (model) build_graph(*model);
}

}  // namespace
}  // namespace plimsoll::engine::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plimsoll::engine::fuzz::run({data, size});
  return 0;
}
