// Shapes belong to a plan, so one model can train with images of several sizes. Masked losses are exact for any window.
#include "tests/support/compiled.h"
#include "tests/support/memory_data.h"

namespace plimsoll::engine::testing {
namespace {

using Json = nlohmann::json;

Json layer_of(const std::string& class_name, const std::string& name, Json config) {
  config["name"] = name;
  return {{"module", "keras.layers"}, {"class_name", class_name}, {"config", config}, {"registered_name", nullptr}};
}

Description description_of(const Json& batch_shape, std::vector<Json> layers, const std::string& loss) {
  layers.insert(layers.begin(), layer_of("InputLayer", "in", {{"batch_shape", batch_shape}, {"dtype", "float32"}}));
  Description description;
  description.config = {{"module", "keras"},
                        {"class_name", "Sequential"},
                        {"config", {{"name", "net"}, {"layers", layers}}},
                        {"registered_name", nullptr}};
  description.compile_config = {{"optimizer", {{"class_name", "SGD"}, {"config", {{"learning_rate", 0.5}}}}},
                                {"loss", loss}};
  return description;
}

Description fully_convolutional() {
  const Json same = {{"filters", 6}, {"kernel_size", 3}, {"padding", "same"}, {"activation", "relu"}};
  return description_of({nullptr, nullptr, nullptr, 2},
                        {layer_of("Conv2D", "a", same), layer_of("MaxPooling2D", "pool", Json::object()),
                         layer_of("Conv2D", "b", {{"filters", 3}, {"kernel_size", 1}})},
                        "mse");
}

std::unique_ptr<ModelRun> run_at(const std::vector<int64_t>& image, int64_t batch) {
  RunOptions options;
  options.device = host_devices().front();
  options.batch_size = batch;
  options.alone = false;
  ModelOptions shape;
  shape.input_shape = image;
  return std::make_unique<ModelRun>(require(open_description(fully_convolutional(), "", shape)), options);
}

void copy_weights(const Session& from, Session& to) {
  const HostView values = require(from.look());
  for (const Weight& weight : from.model().weights())
    require(to.store(weight.name, [&](const TensorView& view) -> Status {
      std::memcpy(view.data, values[weight.name].data, static_cast<size_t>(view.type.bytes()));
      return {};
    }));
}

TEST(Shapes, OneModelOfTwoImageSizesAndBatchesTrainsInOneArenaAsTwoModelsOpenedApart) {
  const auto shared = run_at({8, 8, 2}, 4), small = run_at({8, 8, 2}, 4), large = run_at({12, 10, 2}, 3);
  const Model wide = require(shared->open.model.with_inputs({Shape{12, 10, 2}}));
  SearchRequest request = shared->request;
  request.model = &wide;
  request.batch = 3;
  request.arena = shared->session->kept();
  const size_t other = require(shared->session->add_plan(wide, compiled(request, 3)));
  MemoryData small_data(small->open.model, 4, 5), large_data(large->open.model, 3, 9);
  std::vector<double> losses;
  for (int i = 0; i < 8; ++i) {
    const bool first = i % 2 == 0;
    ModelRun &alone = first ? *small : *large, &before = first ? *large : *small;
    const ColumnSource& data = first ? small_data.source() : large_data.source();
    const int64_t count = first ? 4 : 3;
    require(shared->session->use(first ? 0 : other));
    if (i > 0) copy_weights(*before.session, *alone.session);
    alone.state = shared->state;
    losses.push_back(shared->step(data, 0, count));
    EXPECT_EQ(losses.back(), alone.step(data, 0, count)) << "step " << i;
  }
  EXPECT_LT(losses[6], losses[0]);
}

struct Step {
  double loss;
  std::map<std::string, std::vector<double>> weights;
};

// A mask from computed values: rows whose relu outputs are zero in both channels do not count.
Step masked_step(int64_t micro) {
  const Json penalty = {{"class_name", "L2"}, {"config", {{"l2", 0.01}}}};
  const Description description = description_of(
      {nullptr, 7, 3},
      {layer_of("Dense", "a", {{"units", 2}, {"activation", "relu"}}), layer_of("Masking", "mask", Json::object()),
       layer_of("Dense", "b", {{"units", 4}, {"kernel_regularizer", penalty}})},
      "mse");
  RunOptions options;
  options.batch_size = 10;
  options.forced->micro = micro;
  options.data.sample_weights = true;
  options.alone = false;
  ModelRun run(require(open_description(description, "", {})), options);
  MemoryData data(run.open.model, 10, 3, true);
  Step step{run.step(data.source(), 0, 10), {}};
  for (const Weight& weight : run.open.model.weights()) step.weights[weight.name] = run.values(weight.name);
  return step;
}

TEST(Shapes, AMaskedLossIsThatOfTheWholeWindowHoweverItIsCut) {
  const Step whole = masked_step(10);
  for (const int64_t micro : {1, 3, 5}) {
    const Step cut = masked_step(micro);
    EXPECT_NEAR(cut.loss, whole.loss, 2e-6 * whole.loss) << micro;
    for (const auto& [name, values] : whole.weights)
      EXPECT_LE(relative_difference(values, cut.weights.at(name)), 3e-6) << name << " in micro-batches of " << micro;
  }
}

}  // namespace
}  // namespace plimsoll::engine::testing
