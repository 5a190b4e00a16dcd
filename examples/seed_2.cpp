// A larger batch and image: example 2 of "What causes batch size issues in TensorFlow?", the one that "can potentially
// trigger an OOM error". The whole process is given 160 MiB, well below what the whole batch at once would take, so the
// planner splits the batch into micro-batches.
#include <plimsoll/plimsoll.h>

#include <cstdio>

using namespace plimsoll;

int main() {
  // Dummy data, one batch at a time: the 1000 images of the original would be 187 MiB before training starts
  const int64_t img_height = 128, img_width = 128, batch_size = 128;  // larger images, a larger batch
  const int32_t num_classes = 10;

  auto model = require(sequential({
      layers::Input({img_height, img_width, 3}),
      layers::Conv2D(32, {3, 3}, {.activation = "relu"}),
      layers::MaxPooling2D({2, 2}),
      layers::Conv2D(64, {3, 3}, {.activation = "relu"}),  // one more layer
      layers::MaxPooling2D({2, 2}),
      layers::Flatten(),
      layers::Dense(num_classes, {.activation = "softmax"}),
  }));
  model = require(model.compile({.optimizer = "adam", .loss = losses::SparseCategoricalCrossentropy()}));

  auto trained = require(Model::create(model, {.batch_size = batch_size, .budget = "160MiB", .device = "cpu"}));
  std::fputs(trained.plan().text.c_str(), stdout);

  for (uint64_t step = 0; step < 3; ++step) {
    const auto x_batch = random_uniform({batch_size, img_height, img_width, 3}, step);
    const auto y_batch = random_integers(num_classes, {batch_size}, step);
    std::printf("loss %g\n", require(trained.step({.x = x_batch, .y = y_batch})).loss());
  }
  return trained.arena_peak_bytes() == trained.plan().arena_bytes ? 0 : 1;
}
