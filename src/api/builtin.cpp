#include "api/builtin.h"

#include <new>

#include "api/described.h"

namespace plimsoll::engine {
namespace {

// Builds a convolution and a pooling layer per number of filters, then one dense layer. These are the CNNs of the
// question "What causes batch size issues in TensorFlow?", which started this project.
std::vector<SequentialItem> cnn(int64_t pixels, int64_t channels, const std::vector<int64_t>& filters) {
  std::vector<SequentialItem> list = {layers::Input({pixels, pixels, channels})};
  for (int64_t count : filters) {
    list.emplace_back(layers::Conv2D(count, 3, {.activation = "relu"}));
    list.emplace_back(layers::MaxPooling2D());
  }
  list.emplace_back(layers::Flatten());
  list.emplace_back(layers::Dense(10, {.activation = "softmax"}));
  return list;
}

std::vector<SequentialItem> fashion_cnn() {
  std::vector<SequentialItem> list = cnn(28, 1, {32, 64});
  list.insert(list.begin() + 1, layers::Rescaling(1.0 / 255));
  return list;
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
  std::vector<SequentialItem> list;
  if (name == "seed-1")
    list = cnn(64, 3, {32});
  else if (name == "seed-2")
    list = cnn(128, 3, {32, 64});
  else if (name == "seed-3")
    list = cnn(128, 3, {16, 32});
  else if (name == "fashion-cnn")
    list = fashion_cnn();
  else
    return std::nullopt;
  std::string model_name = name;
  for (char& c : model_name)
    if (c == '-') c = '_';
  auto model = sequential(list, model_name);
  if (model) model = model->compile({.loss = losses::SparseCategoricalCrossentropy(), .metrics = {"accuracy"}});
  if (!model && model.error().code == ErrorCode::kOutOfMemory) throw std::bad_alloc();  // no other error is possible
  return described(*model).description;
}

}  // namespace plimsoll::engine
