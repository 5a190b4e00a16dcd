/// @file
/// A model that is planned for a budget, holds its memory, and trains, evaluates and predicts inside it.
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

/// Plans a model without taking any memory for it. Plan::fits says whether it fits the budget; a plan that does not fit
/// is no error here.
Result<Plan> plan(const Description& description, const Options& options = {});

/// Keras's EarlyStopping with min_delta 0.
struct EarlyStopping {
  std::string monitor = "val_loss";   ///< The metric it watches.
  int64_t patience = 0;               ///< Epochs without improvement before it stops.
  bool restore_best_weights = false;  ///< Puts the weights of the best epoch back at the end.
};

/// Keras's ReduceLROnPlateau with min_delta 1e-4, cooldown 0 and min_lr 0.
struct ReduceLROnPlateau {
  std::string monitor = "val_loss";  ///< The metric it watches.
  double factor = 0.1;               ///< By which the learning rate is multiplied.
  int64_t patience = 10;             ///< Epochs without improvement before it does so.
};

/// Keras's ModelCheckpoint(save_best_only=True).
struct SaveBest {
  std::string path;                  ///< The `.keras` file that is written after each better epoch.
  std::string monitor = "val_loss";  ///< The metric it watches.
};

/// How `fit` trains.
struct FitOptions {
  int64_t epochs = 1;           ///< How often the data are gone through.
  int64_t steps_per_epoch = 0;  ///< Optimizer steps per epoch at most. 0: until the data end.
  bool shuffle = true;          ///< Arrays are read in a new order in each epoch. Sources keep their own order.

  std::optional<Data> validation = {};  ///< Is evaluated after each epoch.
  double validation_split = 0;          ///< Or: the share of the arrays, at their end, that is evaluated instead.

  std::vector<std::shared_ptr<Callback>> callbacks = {};       ///< Are called in this order.
  std::optional<EarlyStopping> early_stopping = {};            ///< Ends training when a metric stops improving.
  std::optional<ReduceLROnPlateau> reduce_lr_on_plateau = {};  ///< Lowers the learning rate then.
  std::optional<SaveBest> save_best = {};                      ///< Keeps the best model in a file.

  /// A folder for checkpoints: one at the end of each epoch, or every checkpoint_every steps. "": none.
  std::string checkpoint = {};
  int64_t checkpoint_every = 0;  ///< In optimizer steps. 0: at the end of each epoch.
  int64_t keep_checkpoints = 2;  ///< The newest included.
  /// Goes on from the newest checkpoint of the folder, where there is one. Arrays continue with the very batch that is
  /// next; a source is asked for its epoch again, and the batches that were trained on are passed over.
  bool resume = false;

  /// Set from another thread or a signal handler: `fit` finishes the micro-batch, writes the checkpoint and returns
  /// with History::interrupted.
  const std::atomic<bool>* stop = nullptr;
};

/// What `fit` did.
struct History {
  std::vector<Logs> epochs;  ///< The logs of each epoch that was trained, validation included.
  int64_t steps = 0;         ///< Optimizer steps that this call made.
  bool stopped = false;      ///< By a callback or early stopping.
  bool interrupted = false;  ///< By FitOptions::stop.
};

/// A weight of a model.
struct WeightInfo {
  std::string name;        ///< "conv2d/kernel"; of a nested model "backbone/conv1/kernel".
  Dims shape;              ///< As in Keras.
  std::string dtype;       ///< "float32".
  bool trainable = false;  ///< False for frozen layers and moving statistics.
};

/// A model inside a budget.
///
/// `create` plans it, takes its memory, and sets its weights: the file's, or new ones by their initializers. From then
/// on nothing grows. Every call returns a Result; a call whose arguments are refused has changed nothing.
///
/// One thread at a time uses a model. Several models may be used by several threads at the same time; each counts what
/// the program held when it was made against its own budget.
class Model {
 public:
  /// Plans the model and takes its memory. P301 if no plan fits the budget, with what would make it fit.
  static Result<Model> create(const Description& description, const Options& options = {});
  /// The same for a `.keras` file: weights and optimizer state go on where the file stands.
  static Result<Model> load(const std::string& path, const Options& options = {});

  Model(Model&&) noexcept;             ///< The other model is empty afterwards: every call of it is an error.
  Model& operator=(Model&&) noexcept;  ///< The other model is empty afterwards: every call of it is an error.
  ~Model();                            ///< Gives the memory back.

  /// Trains on all of the data.
  Result<History> fit(const Data& data, const FitOptions& options = {});

  /// Makes one optimizer step and returns what it reports, as Keras's train_on_batch does: the loss is that of this
  /// batch, before the update. P403 if the loss is not finite although the data are: training has diverged.
  Result<Logs> step(const Batch& batch);

  /// Makes one optimizer step in pieces: `begin` says how many samples the step has, at most batch_size *
  /// gradient_accumulation_steps; `accumulate` takes them batch by batch; `apply` updates the weights with the mean
  /// gradient over all of them. Another order of calls is an error (P201). Options::gradient_accumulation_steps must be
  /// above 1, or the whole step must come in one batch.
  Result<void> begin(int64_t samples);
  Result<void> accumulate(const Batch& batch);  ///< See begin().
  Result<Logs> apply();                         ///< See begin().

  /// Returns loss and metrics over all of the data, as Keras's evaluate does.
  Result<Logs> evaluate(const Data& data);

  /// Returns the predictions in the order of the data, one array per output.
  Result<std::vector<Array>> predict(const Data& data);
  /// Hands over the predictions batch by batch instead of keeping them: `take(output, rows)` is called for each output
  /// of each batch; the view is valid during the call. An error that it returns ends the prediction.
  Result<void> predict(const Data& data, const std::function<Result<void>(size_t output, const ArrayView&)>& take);

  /// The weights in Keras's order.
  std::vector<WeightInfo> weights() const;
  /// Returns a copy of a weight. P201 if the model has none of that name.
  Result<Array> weight(const std::string& name) const;
  /// Sets a weight. P201 if the model has none of that name, P402 for another shape; elements are converted to the
  /// weight's dtype. P403 if an element is not finite.
  Result<void> set_weight(const std::string& name, const ArrayView& values);

  /// The learning rate of the next step.
  Result<double> learning_rate() const;
  /// Sets the learning rate. P201 if a schedule sets it, or if it is not a number above or equal to 0.
  Result<void> set_learning_rate(double rate);
  /// Optimizer steps made so far, those of the file included.
  int64_t iterations() const;

  /// Writes a `.keras` file that Keras loads: model, weights, optimizer state. The file replaces an older one only once
  /// it is whole. P201 between begin() and apply().
  Result<void> save(const std::string& path) const;
  /// Writes everything that a run needs to go on bit for bit, as one file. P201 between begin() and apply().
  Result<void> save_checkpoint(const std::string& path) const;
  /// Reads such a file into a model made from the same description with the same optimizer. P212 for a damaged file or
  /// one of another model; the model then keeps what it had.
  Result<void> load_checkpoint(const std::string& path);

  /// The names of the inputs, in order.
  std::vector<std::string> input_names() const;
  /// The names of the outputs, in order.
  std::vector<std::string> output_names() const;
  /// The plan it runs.
  Plan plan() const;
  /// The end of the highest value or workspace that a kernel has used: measured, not copied from the plan.
  int64_t arena_peak_bytes() const;

 private:
  explicit Model(std::unique_ptr<engine::ModelState> state);
  friend class engine::ModelState;
  std::unique_ptr<engine::ModelState> state_;
};

}  // namespace plimsoll
#pragma GCC visibility pop
