// Plimsoll's C++ interface: describe a model in Keras's words, plan it for a byte budget, train it inside that budget.
//
//   Sequential model({Input({28, 28, 1}), Conv2D(32, {3, 3}, {.activation = "relu"}), Flatten(), Dense(10, {.activation
//   = "softmax"})}); auto trainer = require(Trainer::create(model, Adam(), SparseCategoricalCrossentropy(),
//   {.batch_size = 128, .budget = "256MiB"})); for (const Batch& batch : batches(x, y, 128)) std::printf("loss %g\n",
//   require(trainer.step(batch)));
//
// What can go wrong comes back as a Result; require() turns it into an exception.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "plimsoll/error.h"

namespace plimsoll {

// ---- layers
// ----------------------------------------------------------------------------------------------------------------

// A Keras layer: its class and its configuration as JSON text.
struct LayerSpec {
  std::string class_name;
  std::string config;
};

using Pair = std::array<int64_t, 2>;

struct ConvOptions {
  Pair strides = {1, 1};
  std::string padding = "valid";
  std::string activation = "linear";
  bool use_bias = true;
};
struct PoolOptions {
  std::optional<Pair> strides;  // absent: the pool's size
  std::string padding = "valid";
};
struct DenseOptions {
  std::string activation = "linear";
  bool use_bias = true;
};

LayerSpec Input(const std::vector<int64_t>& shape, const std::string& dtype = "float32");
LayerSpec Conv2D(int64_t filters, Pair kernel_size, const ConvOptions& options = {});
LayerSpec MaxPooling2D(Pair pool_size = {2, 2}, const PoolOptions& options = {});
LayerSpec AveragePooling2D(Pair pool_size = {2, 2}, const PoolOptions& options = {});
LayerSpec GlobalAveragePooling2D();
LayerSpec Flatten();
LayerSpec Dense(int64_t units, const DenseOptions& options = {});
LayerSpec Dropout(double rate);
LayerSpec BatchNormalization();
LayerSpec Rescaling(double scale, double offset = 0);
LayerSpec Activation(const std::string& activation);

class Sequential {
 public:
  explicit Sequential(const std::vector<LayerSpec>& layers, const std::string& name = "sequential");
  const std::string& config() const { return config_; }  // as Keras's model.to_json() would have it

 private:
  std::string config_;
};

// ---- optimizers and losses
// -------------------------------------------------------------------------------------------------

struct OptimizerSpec {
  std::string config;
};
struct LossSpec {
  std::string config;
};

OptimizerSpec Adam(double learning_rate = 0.001);
OptimizerSpec AdamW(double learning_rate = 0.001, double weight_decay = 0.004);
OptimizerSpec SGD(double learning_rate = 0.01, double momentum = 0, bool nesterov = false);
LossSpec SparseCategoricalCrossentropy(bool from_logits = false);
LossSpec CategoricalCrossentropy(bool from_logits = false);
LossSpec BinaryCrossentropy(bool from_logits = false);
LossSpec MeanSquaredError();

// ---- data
// ------------------------------------------------------------------------------------------------------------------

// Samples somebody else owns: rows of x and their labels or targets.
struct Batch {
  const float* x = nullptr;
  const int32_t* labels = nullptr;  // one of labels and targets
  const float* targets = nullptr;
  int64_t samples = 0;
};

std::vector<float> random_uniform(const std::vector<int64_t>& shape, uint64_t seed);
std::vector<int32_t> random_integers(int32_t limit, int64_t count, uint64_t seed);

// Consecutive batches over arrays that outlive the list; the last may be smaller.
std::vector<Batch> batches(const std::vector<float>& x, const std::vector<int32_t>& labels, int64_t batch_size);

// ---- training
// --------------------------------------------------------------------------------------------------------------

struct TrainerOptions {
  int64_t batch_size = 32;
  int64_t gradient_accumulation_steps = 1;  // so many batches make the effective batch
  int64_t micro_batch = 0;                  // how a batch is cut; 0: chosen by the planner
  std::string budget;                       // "256MiB": of the whole process; "": what is free
  int threads = 0;                          // 0: as many as the machine has
  uint64_t seed = 0;
};

class Trainer {
 public:
  static Result<Trainer> create(const Sequential& model, const OptimizerSpec& optimizer, const LossSpec& loss,
                                const TrainerOptions& options = {});
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;
  ~Trainer();

  // One optimizer step on a batch of at most batch_size samples: its loss, before the update.
  Result<double> step(const Batch& batch);

  // The same in pieces, where gradient_accumulation_steps is above 1: a window of `samples` samples, given batch by
  // batch, and then one update with the mean gradient over all of them.
  Result<void> begin(int64_t samples);
  Result<void> accumulate(const Batch& batch);
  Result<double> apply();  // the window's loss

  std::string plan() const;  // the table `plimsoll plan` prints
  int64_t arena_planned_bytes() const;
  int64_t arena_peak_bytes() const;                  // measured
  Result<void> save(const std::string& path) const;  // a `.keras` file

 private:
  struct State;
  explicit Trainer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace plimsoll
