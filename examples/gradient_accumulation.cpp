// Gradient accumulation: example 2 of "How to address TensorFlow/Keras OOM errors?", corrected. The original sums
// the gradients of four batches and drops the remainder; here the update takes the mean over the effective batch, and
// the last, smaller window is trained on too. `step` on batches of 128 gives the same weights up to rounding.
#include <plimsoll/plimsoll.h>

#include <algorithm>
#include <cstdio>

using namespace plimsoll;

int main() {
  const int64_t accumulation_steps = 4, batch_size = 32, samples = 1000;
  const auto x_train = random_uniform({samples, 32, 32, 3}, 0);
  const auto y_train = random_integers(10, {samples}, 1);

  auto model = require(sequential({
      layers::Input({32, 32, 3}),
      layers::Conv2D(16, {3, 3}, {.activation = "relu"}),
      layers::MaxPooling2D({2, 2}),
      layers::Flatten(),
      layers::Dense(10, {.activation = "softmax"}),
  }));
  model = require(model.compile(
      {.optimizer = optimizers::Adam({.learning_rate = 1e-3}), .loss = losses::SparseCategoricalCrossentropy()}));
  auto trained = require(Model::create(
      model, {.batch_size = batch_size, .gradient_accumulation_steps = accumulation_steps, .budget = "1GiB"}));

  const int64_t window = accumulation_steps * batch_size;
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (int64_t first = 0; first < samples; first += window) {
      const int64_t end = std::min(first + window, samples);
      require(trained.begin(end - first));
      for (int64_t at = first; at < end; at += batch_size) {
        const int64_t count = std::min(batch_size, end - at);
        require(trained.accumulate({.x = x_train.rows(at, count), .y = y_train.rows(at, count)}));
      }
      std::printf("loss %g\n", require(trained.apply()).loss());
    }
  }
  return trained.arena_peak_bytes() == trained.plan().arena_bytes ? 0 : 1;
}
