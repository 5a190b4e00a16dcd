// Plimsoll's C++ interface: describe a model in Keras's words, plan it for a byte budget, train it inside that budget.
//
// clang-format off
//   Sequential model({Input({28, 28, 1}),
//                     Conv2D(32, {3, 3}, {.activation = "relu"}),
//                     Flatten(),
//                     Dense(10, {.activation = "softmax"})});
//   auto trainer = require(Trainer::create(model, Adam(), SparseCategoricalCrossentropy(),
//                                          {.batch_size = 128, .budget = "256MiB"}));
//   for (const Batch& batch : batches(x, y, 128)) std::printf("loss %g\n", require(trainer.step(batch)));
// clang-format on
//
// What can go wrong comes back as a Result, in the words of this interface; nothing throws. require() turns an error
// into an exception. A call whose arguments are refused has changed nothing.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "plimsoll/array.h"
#include "plimsoll/error.h"
#include "plimsoll/version.h"

#pragma GCC visibility push(default)
namespace plimsoll {

// ---- layers

// A Keras layer: its class and its configuration as JSON text. Trainer::create says what is wrong with one.
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
  const std::string& fault() const { return fault_; }    // a layer's configuration that is not JSON; "": none is

 private:
  std::string config_, fault_;
};

// ---- optimizers and losses

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

// Samples that the caller owns: rows of x and their labels or targets. Before anything is computed, the number of
// elements, their dtypes, labels outside the classes and elements that are not finite are checked (P402, P403, P404).
struct Batch {
  ArrayView x = {};        // of the dtype that the model's Input declares
  ArrayView labels = {};   // for a loss with sparse labels: whole numbers of any dtype
  ArrayView targets = {};  // for the other losses: float32
  int64_t samples = 0;
};

// Numbers in [0, 1), and whole numbers in [0, limit); none where a dimension, the limit or the count is not above 0.
std::vector<float> random_uniform(const std::vector<int64_t>& shape, uint64_t seed);
std::vector<int32_t> random_integers(int32_t limit, int64_t count, uint64_t seed);

// Consecutive batches over arrays that outlive the list; the last may be smaller. Where the arrays or batch_size make
// no batches, the list has one that Trainer refuses with the reason.
std::vector<Batch> batches(const std::vector<float>& x, const std::vector<int32_t>& labels, int64_t batch_size);

// ---- training

struct TrainerOptions {
  int64_t batch_size = 32;                  // the most samples of one Batch
  int64_t gradient_accumulation_steps = 1;  // so many batches make the effective batch
  int64_t micro_batch = 0;                  // how a batch is cut; 0: chosen by the planner
  // "256MiB": of the whole process, what the program holds before Trainer::create included; on a GPU, of the GPU's
  // memory. "": what is free, less a margin.
  std::string budget = {};
  int threads = 0;  // 0: as many as the machine has
  uint64_t seed = 0;
};

namespace engine {
class TrainerState;
}

// One thread at a time uses a trainer.
class Trainer {
 public:
  static Result<Trainer> create(const Sequential& model, const OptimizerSpec& optimizer, const LossSpec& loss,
                                const TrainerOptions& options = {});
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;
  ~Trainer();

  // One optimizer step on a batch of 1 to batch_size samples: its loss, before the update. P403 if the loss is not
  // finite although the data are: training has diverged.
  Result<double> step(const Batch& batch);

  // The same in pieces, where gradient_accumulation_steps is above 1: begin a window of at most batch_size *
  // gradient_accumulation_steps samples, accumulate them batch by batch, and apply one update with the mean gradient
  // over all of them. Another order of calls is an error (P201).
  Result<void> begin(int64_t samples);
  Result<void> accumulate(const Batch& batch);
  Result<double> apply();  // the window's loss

  std::string plan() const;  // the table `plimsoll plan` prints
  int64_t arena_planned_bytes() const;
  int64_t arena_peak_bytes() const;                  // measured
  Result<void> save(const std::string& path) const;  // a `.keras` file; not inside a window

 private:
  explicit Trainer(std::unique_ptr<engine::TrainerState> state);
  std::unique_ptr<engine::TrainerState> state_;  // null once moved from
};

}  // namespace plimsoll
#pragma GCC visibility pop
