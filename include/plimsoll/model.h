/// @file
/// A model that is planned for a memory budget, and trains, evaluates and predicts within it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plimsoll/array.h"
#include "plimsoll/callback.h"
#include "plimsoll/data.h"
#include "plimsoll/description.h"
#include "plimsoll/options.h"
#include "plimsoll/plan.h"

#pragma GCC visibility push(default)
namespace plimsoll {

namespace engine {
class ModelState;
}

/// Plans a model without allocating memory for it. Plan::fits says whether the plan fits the budget. A plan that does
/// not fit is not an error here.
Result<Plan> plan(const Description& description, const Options& options = {});

/// Keras's EarlyStopping with min_delta 0.
struct EarlyStopping {
  std::string monitor = "val_loss";   ///< The metric it watches.
  int64_t patience = 0;               ///< Epochs without improvement before it stops.
  bool restore_best_weights = false;  ///< Restores the weights of the best epoch at the end.
};

/// Keras's ReduceLROnPlateau with min_delta 1e-4, cooldown 0 and min_lr 0.
struct ReduceLROnPlateau {
  std::string monitor = "val_loss";  ///< The metric it watches.
  double factor = 0.1;               ///< The factor that the learning rate is multiplied by.
  int64_t patience = 10;             ///< Epochs without improvement before the learning rate is lowered.
};

/// Keras's ModelCheckpoint(save_best_only=True).
struct SaveBest {
  std::string path;                  ///< The `.keras` file that is written after each epoch that improves the metric.
  std::string monitor = "val_loss";  ///< The metric it watches.
};

/// How `fit` trains.
struct FitOptions {
  int64_t epochs = 1;           ///< The number of passes over the data.
  int64_t steps_per_epoch = 0;  ///< The maximum number of optimizer steps per epoch. 0: until the data end.
  bool shuffle = true;          ///< Arrays are read in a new order in each epoch. Sources keep their own order.

  std::optional<Data> validation = {};  ///< Data that are evaluated after each epoch.
  double validation_split = 0;  ///< Instead of `validation`: the share at the end of the arrays to validate with.

  std::vector<std::shared_ptr<Callback>> callbacks = {};       ///< Called in this order.
  std::optional<EarlyStopping> early_stopping = {};            ///< Ends training when a metric stops improving.
  std::optional<ReduceLROnPlateau> reduce_lr_on_plateau = {};  ///< Lowers the learning rate on a plateau.
  std::optional<SaveBest> save_best = {};                      ///< Keeps the best model in a file.

  /// A folder for checkpoints: one at the end of each epoch, or every checkpoint_every steps. "": none.
  std::string checkpoint = {};
  int64_t checkpoint_every = 0;  ///< Optimizer steps between checkpoints. 0: one at the end of each epoch.
  int64_t keep_checkpoints = 2;  ///< The number of checkpoints to keep, including the newest.
  /// Resumes from the newest checkpoint in the folder, if there is one. Arrays continue with the next batch. A source
  /// starts its epoch again, and the batches that were already trained on are skipped.
  bool resume = false;

  /// Another thread or a signal handler may set this flag. `fit` then finishes the micro-batch, writes the checkpoint
  /// and returns with History::interrupted.
  const std::atomic<bool>* stop = nullptr;
};

/// The result of `fit`.
struct History {
  std::vector<Logs> epochs;  ///< The logs of each trained epoch, including validation.
  int64_t steps = 0;         ///< Optimizer steps that this call made.
  bool stopped = false;      ///< A callback or early stopping ended the training.
  bool interrupted = false;  ///< FitOptions::stop ended the training.
};

/// A weight of a model.
struct WeightInfo {
  std::string name;        ///< "conv2d/kernel"; of a nested model "backbone/conv1/kernel".
  Dims shape;              ///< As in Keras.
  std::string dtype;       ///< "float32".
  bool trainable = false;  ///< False for frozen layers and moving statistics.
};

/// A model inside a budget.
/// `create` plans the model, allocates its memory, and sets its weights from the file or from the initializers. After
/// that, its memory does not grow. Every call returns a Result. If a call refuses its arguments, the model is
/// unchanged. Only one thread at a time may use a model. Several threads may use several models at the same time. The
/// memory that the program held when a model was made counts against that model's budget.
class Model {
 public:
  /// Plans the model and allocates its memory. Fails with P301 if no plan fits the budget; the error says what would
  /// make it fit.
  static Result<Model> create(const Description& description, const Options& options = {});
  /// Does the same for a `.keras` file. Training continues with the weights and the optimizer state of the file.
  static Result<Model> load(const std::string& path, const Options& options = {});

  Model(Model&&) noexcept;             ///< The other model is empty afterwards, and every call on it fails.
  Model& operator=(Model&&) noexcept;  ///< The other model is empty afterwards, and every call on it fails.
  ~Model();                            ///< Frees the memory.

  /// Trains on all of the data.
  Result<History> fit(const Data& data, const FitOptions& options = {});

  /// Makes one optimizer step and returns what it reports, as Keras's train_on_batch does: the loss is that of this
  /// batch, before the update. Fails with P403 if the loss is not finite although the data are finite, which means that
  /// training has diverged.
  Result<Logs> step(const Batch& batch);

  /// Makes one optimizer step in pieces: `begin` says how many samples the step has, at most batch_size *
  /// gradient_accumulation_steps; `accumulate` takes them batch by batch; `apply` updates the weights with the mean
  /// gradient over all of them. Another order of calls fails with P201. Options::gradient_accumulation_steps must be
  /// above 1, or the whole step must come in one batch.
  Result<void> begin(int64_t samples);
  Result<void> accumulate(const Batch& batch);  ///< See begin().
  Result<Logs> apply();                         ///< See begin().

  /// Computes loss and metrics of one batch of any size without training, as Keras's test_on_batch does.
  Result<Logs> test(const Batch& batch);

  /// The loss and metrics over all samples that step(), apply() and test() have seen since reset_metrics(): what Keras
  /// shows in its progress bar. A loop of epochs calls reset_metrics() before each epoch and before each evaluation.
  Result<Logs> metrics() const;
  Result<void> reset_metrics();  ///< See metrics().

  /// Returns loss and metrics over all of the data, as Keras's evaluate does.
  Result<Logs> evaluate(const Data& data);

  /// Returns the predictions in the order of the data, one array per output.
  Result<std::vector<Array>> predict(const Data& data);
  /// Predicts batch by batch without storing the results. `take(output, rows)` is called for each output of each batch.
  /// The view is valid during the call. If `take` returns an error, the prediction ends with that error.
  Result<void> predict(const Data& data, const std::function<Result<void>(size_t output, const ArrayView&)>& take);

  /// The weights in Keras's order.
  std::vector<WeightInfo> weights() const;
  /// Returns a copy of a weight. Fails with P201 if the model has no weight of that name.
  Result<Array> weight(const std::string& name) const;
  /// Sets a weight. Elements are converted to the weight's dtype. Fails with P201 if the model has no weight of that
  /// name, with P402 if the shape is wrong, and with P403 if an element is not finite.
  Result<void> set_weight(const std::string& name, const ArrayView& values);

  /// The learning rate of the next step.
  Result<double> learning_rate() const;
  /// Sets the learning rate. Fails with P201 if a schedule sets the learning rate, or if `rate` is negative or not
  /// finite.
  Result<void> set_learning_rate(double rate);
  /// The optimizer steps made so far, including those of the file.
  int64_t iterations() const;
  /// Sets the number of optimizer steps made so far, on which schedules and Adam's bias correction depend. Fails with
  /// P201 if the number is negative.
  Result<void> set_iterations(int64_t iterations);

  /// The optimizer's variables in the order of Keras's `optimizer.variables`, after the iteration and the learning
  /// rate. The name is empty for a variable that this model does not keep, because it never changes: a placeholder, or
  /// the state of a weight that gets no gradient.
  std::vector<WeightInfo> optimizer_variables() const;
  /// Returns a copy of an optimizer variable, by its name in optimizer_variables(). Fails with P201 for another name.
  Result<Array> optimizer_variable(const std::string& name) const;
  /// Sets an optimizer variable. Fails as set_weight() does.
  Result<void> set_optimizer_variable(const std::string& name, const ArrayView& values);

  /// Writes a `.keras` file that Keras loads: model, weights, optimizer state. It replaces an older file only after it
  /// is complete. Fails with P201 between begin() and apply().
  Result<void> save(const std::string& path) const;
  /// Writes one file with everything that is needed to continue with bit-identical results. Fails with P201 between
  /// begin() and apply().
  Result<void> save_checkpoint(const std::string& path) const;
  /// Reads a file of save_checkpoint() into a model that was made from the same description with the same optimizer.
  /// Fails with P212 if the file is damaged or belongs to another model; the model is then unchanged.
  Result<void> load_checkpoint(const std::string& path);

  /// The names of the inputs, in order.
  std::vector<std::string> input_names() const;
  /// The names of the outputs, in order.
  std::vector<std::string> output_names() const;
  /// The plan of this model.
  Plan plan() const;
  /// The highest end address in the arena of any value or workspace that a kernel has used. It is measured, not copied
  /// from the plan.
  int64_t arena_peak_bytes() const;

 private:
  explicit Model(std::unique_ptr<engine::ModelState> state);
  friend class engine::ModelState;
  std::unique_ptr<engine::ModelState> state_;
};

}  // namespace plimsoll
#pragma GCC visibility pop
