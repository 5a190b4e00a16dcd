// The reduced model and batch: example 3 of "What causes batch size issues in TensorFlow?". What it gives up (filters
// and batch) is the remedy of last resort; see seed_2.cpp for keeping both.
#include <plimsoll/plimsoll.h>

#include <cstdio>

using namespace plimsoll;

int main() {
  // Dummy data
  const int64_t img_height = 128, img_width = 128, batch_size = 16;  // a smaller batch
  const int32_t num_classes = 10;
  const auto x_train = random_uniform({200, img_height, img_width, 3}, 0);
  const auto y_train = random_integers(num_classes, 200, 1);

  const Sequential model({
      Input({img_height, img_width, 3}),
      Conv2D(16, {3, 3}, {.activation = "relu"}),  // fewer filters
      MaxPooling2D({2, 2}),
      Conv2D(32, {3, 3}, {.activation = "relu"}),  // fewer filters
      MaxPooling2D({2, 2}),
      Flatten(),
      Dense(num_classes, {.activation = "softmax"}),
  });

  auto trainer = require(
      Trainer::create(model, Adam(), SparseCategoricalCrossentropy(), {.batch_size = batch_size, .budget = "256MiB"}));
  std::fputs(trainer.plan().c_str(), stdout);

  for (const Batch& batch : batches(x_train, y_train, batch_size)) {
    const double loss = require(trainer.step(batch));
    std::printf("Loss: %g\n", loss);
  }
  return trainer.arena_peak_bytes() == trainer.arena_planned_bytes() ? 0 : 1;
}
