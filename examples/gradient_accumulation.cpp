// Gradient accumulation: example 2 of "How to address TensorFlow/Keras OOM errors?", as it was meant. The original sums
// the gradients of four batches and drops the remainder; here the update takes the mean over the effective batch, and
// the last, smaller window is trained on too. `step` on batches of 128 gives the same weights up to rounding.
#include <plimsoll/plimsoll.h>

#include <algorithm>
#include <cstdio>

using namespace plimsoll;

int main() {
  const int64_t accumulation_steps = 4, batch_size = 32, samples = 1000;
  const auto x_train = random_uniform({samples, 32, 32, 3}, 0);
  const auto y_train = random_integers(10, samples, 1);

  const Sequential model({
      Input({32, 32, 3}),
      Conv2D(16, {3, 3}, {.activation = "relu"}),
      MaxPooling2D({2, 2}),
      Flatten(),
      Dense(10, {.activation = "softmax"}),
  });
  auto trainer = require(Trainer::create(
      model, Adam(1e-3), SparseCategoricalCrossentropy(),
      {.batch_size = batch_size, .gradient_accumulation_steps = accumulation_steps, .budget = "256MiB"}));

  for (int epoch = 0; epoch < 2; ++epoch) {
    const auto train_dataset = batches(x_train, y_train, batch_size);
    for (size_t step = 0; step < train_dataset.size(); ++step) {
      const bool first = step % accumulation_steps == 0;
      const bool last = (step + 1) % accumulation_steps == 0 || step + 1 == train_dataset.size();
      const int64_t done = static_cast<int64_t>(step) * batch_size;
      if (first) require(trainer.begin(std::min(accumulation_steps * batch_size, samples - done)));
      require(trainer.accumulate(train_dataset[step]));
      if (last) std::printf("Loss: %g\n", require(trainer.apply()));
    }
  }
  return trainer.arena_peak_bytes() == trainer.arena_planned_bytes() ? 0 : 1;
}
