// A custom training loop. Batches come from a generator of unknown length. The loop warms up the learning rate, keeps
// the best weights, and stops when the loss is low enough.
#include <plimsoll/plimsoll.h>

#include <algorithm>
#include <cstdio>
#include <limits>

using namespace plimsoll;

int main() {
  auto model = require(sequential({
      layers::Input({16}),
      layers::Dense(64, {.activation = "relu"}),
      layers::Dense(1),
  }));
  model =
      require(model.compile({.optimizer = optimizers::SGD({.learning_rate = 0.0, .momentum = 0.9}), .loss = "mse"}));
  auto trained = require(Model::create(model, {.batch_size = 32, .budget = "1GiB"}));

  double best = std::numeric_limits<double>::infinity();
  for (uint64_t step = 0; step < 400 && best > 0.002; ++step) {
    // The target is the mean of the inputs.
    const auto x = random_uniform({32, 16}, step);
    auto y = require(Array::zeros({32, 1}));
    const auto in = require(x.values<float>());
    const auto out = require(y.values<float>());
    for (size_t i = 0; i < 32; ++i)
      for (size_t j = 0; j < 16; ++j) out[i] += in[16 * i + j] / 16;

    require(trained.set_learning_rate(0.05 * std::min(1.0, static_cast<double>(step + 1) / 20)));
    const Logs logs = require(trained.step({.x = x, .y = y}));
    if (logs.loss() < best) {
      best = logs.loss();
      require(trained.save_checkpoint("best.state"));
    }
    if (step % 50 == 0) std::printf("step %llu, loss %g\n", static_cast<unsigned long long>(step), logs.loss());
  }
  require(trained.load_checkpoint("best.state"));
  std::remove("best.state");
  std::printf("best loss %g\n", best);
  return trained.arena_peak_bytes() == trained.plan().arena_bytes && best < 0.01 ? 0 : 1;
}
