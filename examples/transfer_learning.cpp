// Transfer learning in both phases: a new head on a frozen backbone, then the whole model with a small learning rate.
// This program trains and saves the backbone itself; a `.keras` file from Keras works too.
#include <plimsoll/plimsoll.h>

#include <cstdio>

using namespace plimsoll;

namespace {

// Makes a backbone and trains its weights.
void make_backbone(const std::string& path) {
  const Tensor picture = layers::Input({32, 32, 3}, {.name = "picture"});
  Tensor x = layers::Conv2D(16, 3, {.activation = "relu", .name = "conv1"})(picture);
  x = layers::BatchNormalization({.name = "norm1"})(x);
  x = layers::MaxPooling2D()(x);
  x = layers::Conv2D(32, 3, {.activation = "relu", .name = "conv2"})(x);
  const Tensor features = layers::GlobalAveragePooling2D()(x);
  auto backbone = require(functional({picture}, {features}, "backbone"));
  backbone = require(backbone.compile({.loss = "mse"}));
  auto trained = require(Model::create(backbone, {.batch_size = 32}));
  const auto pictures = random_uniform({64, 32, 32, 3}, 0), targets = random_uniform({64, 32}, 1);
  require(trained.fit(Data::arrays(pictures, targets)));
  require(trained.save(path));
}

}  // namespace

int main() {
  make_backbone("backbone.keras");
  const auto pictures = random_uniform({128, 32, 32, 3}, 2);
  const auto labels = random_integers(2, {128}, 3);

  const Description backbone = require(Description::load("backbone.keras"));
  const Tensor picture = layers::Input({32, 32, 3});
  const Tensor features = layers::model(backbone, {.trainable = false})(picture);
  const Tensor answer = layers::Dense(2, {.activation = "softmax"})(layers::Dropout(0.2)(features));
  auto model = require(functional({picture}, {answer}));
  model = require(
      model.compile({.optimizer = "adam", .loss = losses::SparseCategoricalCrossentropy(), .metrics = {"accuracy"}}));
  {
    auto head = require(Model::create(model, {.batch_size = 32, .budget = "2GiB"}));
    const History history = require(head.fit(Data::arrays(pictures, labels), {.epochs = 3}));
    std::printf("head alone: loss %g\n", history.epochs.back().loss());
    require(head.save("head.keras"));
  }

  model = require(require(Description::load("head.keras")).set_trainable("backbone", true));
  model = require(model.compile({.optimizer = optimizers::Adam({.learning_rate = 1e-5}),
                                 .loss = losses::SparseCategoricalCrossentropy(),
                                 .metrics = {"accuracy"}}));
  auto whole = require(Model::create(model, {.batch_size = 32, .budget = "2GiB"}));
  const History history = require(whole.fit(Data::arrays(pictures, labels), {.epochs = 2}));
  std::printf("all layers: loss %g\n", history.epochs.back().loss());
  std::remove("backbone.keras");
  std::remove("head.keras");
  return whole.arena_peak_bytes() == whole.plan().arena_bytes ? 0 : 1;
}
