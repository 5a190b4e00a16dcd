// A larger batch and image: example 2 of "What causes batch size issues in TensorFlow?", the one that "can potentially
// trigger an OOM error". Here the whole process is given 160 MiB, well below what the whole batch at once would take,
// and the planner cuts the batch.
#include <plimsoll/plimsoll.h>

#include <cstdio>

using namespace plimsoll;

int main() {
  // Dummy data, a batch at a time: the 1000 images of the original would be 187 MiB before training starts
  const int64_t img_height = 128, img_width = 128, batch_size = 128;  // larger images, a larger batch
  const int32_t num_classes = 10;

  const Sequential model({
      Input({img_height, img_width, 3}),
      Conv2D(32, {3, 3}, {.activation = "relu"}),
      MaxPooling2D({2, 2}),
      Conv2D(64, {3, 3}, {.activation = "relu"}),  // one more layer
      MaxPooling2D({2, 2}),
      Flatten(),
      Dense(num_classes, {.activation = "softmax"}),
  });

  auto trainer = require(
      Trainer::create(model, Adam(), SparseCategoricalCrossentropy(), {.batch_size = batch_size, .budget = "160MiB"}));
  std::fputs(trainer.plan().c_str(), stdout);

  for (uint64_t step = 0; step < 3; ++step) {
    const auto x_batch = random_uniform({batch_size, img_height, img_width, 3}, step);
    const auto y_batch = random_integers(num_classes, batch_size, step);
    const double loss = require(trainer.step({.x = x_batch, .labels = y_batch, .samples = batch_size}));
    std::printf("Loss: %g\n", loss);
  }
  return trainer.arena_peak_bytes() == trainer.arena_planned_bytes() ? 0 : 1;
}
