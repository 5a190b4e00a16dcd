#include "api/builtin.h"

#include "base/json.h"
#include "plimsoll/plimsoll.h"

namespace plimsoll::engine {
namespace {

// Convolution and pooling for each number of filters, then one dense layer: the CNNs of "What causes batch size issues
// in TensorFlow?", from which this project started.
std::vector<LayerSpec> cnn(int64_t pixels, int64_t channels, const std::vector<int64_t>& filters) {
  std::vector<LayerSpec> layers = {Input({pixels, pixels, channels})};
  for (int64_t count : filters) {
    layers.push_back(Conv2D(count, {3, 3}, {.activation = "relu"}));
    layers.push_back(MaxPooling2D({2, 2}));
  }
  layers.push_back(Flatten());
  layers.push_back(Dense(10, {.activation = "softmax"}));
  return layers;
}

std::vector<LayerSpec> fashion_cnn() {
  std::vector<LayerSpec> layers = cnn(28, 1, {32, 64});
  layers.insert(layers.begin() + 1, Rescaling(1.0 / 255));
  return layers;
}

}  // namespace

const std::vector<BuiltinModel>& builtin_models() {
  static const std::vector<BuiltinModel> models = {
      {"seed-1", "64 px, one convolution of 32 filters; its batch is 32"},
      {"seed-2", "128 px, convolutions of 32 and 64 filters; its batch is 128: the one that may run out of memory"},
      {"seed-3", "128 px, convolutions of 16 and 32 filters; its batch is 16"},
      {"fashion-cnn", "28 px grey images of bytes, convolutions of 32 and 64 filters: Fashion-MNIST"}};
  return models;
}

std::optional<Description> builtin_model(const std::string& name) {
  std::vector<LayerSpec> layers;
  if (name == "seed-1")
    layers = cnn(64, 3, {32});
  else if (name == "seed-2")
    layers = cnn(128, 3, {32, 64});
  else if (name == "seed-3")
    layers = cnn(128, 3, {16, 32});
  else if (name == "fashion-cnn")
    layers = fashion_cnn();
  else
    return std::nullopt;
  std::string model_name = name;
  for (char& c : model_name)
    if (c == '-') c = '_';
  Description description;
  description.config = nlohmann::json::parse(Sequential(layers, model_name).config());
  description.compile_config = json_object({{"optimizer", nlohmann::json::parse(Adam().config)},
                                            {"loss", nlohmann::json::parse(SparseCategoricalCrossentropy().config)},
                                            {"metrics", {"accuracy"}}});
  return description;
}

}  // namespace plimsoll::engine
