// The reduced model and batch: example 3 of "What causes batch size issues in TensorFlow?". It gives up filters and
// batch size, which is the remedy of last resort; seed_2.cpp keeps both.
#include <plimsoll/plimsoll.h>

#include <cstdio>

using namespace plimsoll;

int main() {
  // Dummy data
  const int64_t img_height = 128, img_width = 128, batch_size = 16;  // a smaller batch
  const int32_t num_classes = 10;
  const auto x_train = random_uniform({200, img_height, img_width, 3}, 0);
  const auto y_train = random_integers(num_classes, {200}, 1);

  auto model = require(sequential({
      layers::Input({img_height, img_width, 3}),
      layers::Conv2D(16, {3, 3}, {.activation = "relu"}),  // fewer filters
      layers::MaxPooling2D({2, 2}),
      layers::Conv2D(32, {3, 3}, {.activation = "relu"}),  // fewer filters
      layers::MaxPooling2D({2, 2}),
      layers::Flatten(),
      layers::Dense(num_classes, {.activation = "softmax"}),
  }));
  model = require(model.compile({.optimizer = "adam", .loss = losses::SparseCategoricalCrossentropy()}));

  auto trained = require(Model::create(model, {.batch_size = batch_size, .budget = "1GiB"}));
  std::fputs(trained.plan().text.c_str(), stdout);

  const History history = require(trained.fit(Data::arrays(x_train, y_train)));
  std::printf("loss %g after %lld steps\n", history.epochs[0].loss(), static_cast<long long>(history.steps));
  return trained.arena_peak_bytes() == trained.plan().arena_bytes ? 0 : 1;
}
