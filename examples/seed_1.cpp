// Basic image classification with a small batch: example 1 of "What causes batch size issues in TensorFlow?".
#include <plimsoll/plimsoll.h>

#include <cstdio>

using namespace plimsoll;

int main() {
  // Dummy data
  const int64_t img_height = 64, img_width = 64, batch_size = 32;
  const int32_t num_classes = 10;
  const auto x_train = random_uniform({1000, img_height, img_width, 3}, 0);
  const auto y_train = random_integers(num_classes, {1000}, 1);

  auto model = require(sequential({
      layers::Input({img_height, img_width, 3}),
      layers::Conv2D(32, {3, 3}, {.activation = "relu"}),
      layers::MaxPooling2D({2, 2}),
      layers::Flatten(),
      layers::Dense(num_classes, {.activation = "softmax"}),
  }));
  model = require(
      model.compile({.optimizer = "adam", .loss = losses::SparseCategoricalCrossentropy(), .metrics = {"accuracy"}}));

  auto trained = require(Model::create(model, {.batch_size = batch_size, .budget = "1GiB"}));
  std::fputs(trained.plan().text.c_str(), stdout);

  const History history = require(trained.fit(Data::arrays(x_train, y_train), {.epochs = 2}));
  for (const Logs& epoch : history.epochs)
    std::printf("loss %g, accuracy %g\n", epoch.loss(), epoch.find("accuracy").value_or(0));
  return trained.arena_peak_bytes() == trained.plan().arena_bytes ? 0 : 1;
}
