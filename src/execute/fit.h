// The training loop: windows over epochs, validation, checkpoints, and what an observer is told.
#pragma once

#include <atomic>
#include <optional>

#include "execute/callbacks.h"
#include "execute/checkpoint_folder.h"
#include "execute/session.h"
#include "execute/weights.h"
#include "execute/window_reader.h"

namespace plimsoll::engine {

struct StepEvent {
  int64_t epoch = 0, step = 0;      // step: optimizer steps of the whole run, from 1
  int64_t window = 0, windows = 0;  // of this epoch; windows 0: nobody knows how many
  double loss = 0;                  // of this batch alone, as train_on_batch reports it
  double seconds = 0;
  int64_t samples = 0;
  const std::vector<Metric>* running = nullptr;  // means over the epoch so far, the loss first
  const std::vector<Metric>* own = nullptr;      // of this step's samples alone; null unless needs_every_step()
};

struct EpochEvent {
  int64_t epoch = 0, epochs = 0;
  double seconds = 0;
  std::vector<Metric> metrics;  // validation's as "val_..."
  double learning_rate = 0;     // with which it was trained, where no schedule sets it
};

// What an observer may change.
struct FitControl {
  double learning_rate = 0;  // from the next step on, unless a schedule sets it
  bool stop = false;         // training ends after this step or epoch
};

// Is told what happens. An error that it returns ends the loop.
class FitObserver {
 public:
  virtual ~FitObserver() = default;
  virtual Status on_train_begin(int64_t /*steps*/, FitControl&) { return {}; }  // steps made before a resume
  virtual Status on_epoch_begin(int64_t /*epoch*/, int64_t /*epochs*/, int64_t /*windows*/, FitControl&) { return {}; }
  virtual Status on_step(const StepEvent&, FitControl&) { return {}; }
  virtual Status on_epoch_end(const EpochEvent&, FitControl&) { return {}; }
  virtual Status on_train_end(FitControl&) { return {}; }
  virtual void on_note(const std::string&) {}      // "stopped early: ..."
  virtual void on_checkpoint(int64_t /*step*/) {}  // it is written
  // Whether on_step() must be called before the next step begins. A device with a queue then waits for the host.
  virtual bool needs_every_step() const { return false; }
};

struct FitOptions {
  int64_t epochs = 1;
  int64_t steps_per_epoch = 0;  // 0: all of the data
  uint64_t seed = 0;
  std::string checkpoint_folder;       // "": none
  int64_t checkpoint_every_steps = 0;  // 0: at the end of each epoch
  int64_t keep_checkpoints = 2;        // the newest included
  bool resume = false;
  CallbackOptions callbacks;
  std::function<Status(const OptimizerState&)> save_best;  // writes the model, by callbacks.save_best
  std::string best_weights_beside;          // without a checkpoint folder: best weights wait in a file beside this one
  std::optional<double> learning_rate;      // of the command line: on resuming it replaces the checkpoint's
  const std::atomic<bool>* stop = nullptr;  // set from a signal handler: finish the micro-batch and return
  nlohmann::json identity = nlohmann::json::object();  // what a resumed run must share: model, data, batch, seed
  nlohmann::json validation_identity;                  // what it need not share, but should
};

// Keys of the identity that are compared in a way of their own: a rate on the command line replaces a schedule, and a
// batch that was not asked for follows from the number of samples.
inline constexpr const char* kScheduleIdentity = "learning-rate schedule";
inline constexpr const char* kSamplesIdentity = "samples to train on";
inline constexpr const char* kBatchIdentity = "--batch-size";

struct FitResult {
  OptimizerState optimizer;
  int64_t steps = 0;  // of this process
  bool interrupted = false;
  bool mid_window = false;            // interrupted inside a window: only a checkpoint can go on exactly
  std::optional<int64_t> resumed_at;  // step
  bool stopped_early = false;         // by callbacks, in this process or one before it
  bool stopped = false;               // by the observer
  std::vector<EpochEvent> history;
};

// Evaluates the validation data after an epoch; kInterrupted where FitOptions::stop was set meanwhile.
using Validate = std::function<Result<std::vector<Metric>>()>;

// Without `validate` nothing is validated. The session's weights must be loaded, unless options.resume finds a
// checkpoint. `reached` is the optimizer's state: where training starts, and at every moment where it stands, also
// after an error.
Result<FitResult> fit(Session& session, WindowReader& data, const Validate& validate, OptimizerState& reached,
                      const FitOptions& options, FitObserver& observer);
// The same over sources that are read by position. `validation` may be null.
Result<FitResult> fit(Session& session, BatchSource& data, BatchSource* validation, const OptimizerState& start,
                      const FitOptions& options, FitObserver& observer);

// Mean loss and metrics over a whole source, as Keras's evaluate reports them.
Result<std::vector<Metric>> evaluate(Session& session, BatchSource& data, const std::atomic<bool>* stop = nullptr,
                                     const std::function<void(int64_t done)>& progress = {});

// P212 unless the checkpoint of a folder is one of a run with these options' identity.
Status check_checkpoint(const std::string& folder, const FitOptions& options);
// The plan a checkpoint was made with: resuming uses it, so that the same bits come out.
Result<Plan> plan_of_checkpoint(const std::string& folder);
Result<int64_t> step_of_checkpoint(const std::string& folder);
Result<int64_t> epoch_of_checkpoint(const std::string& folder);  // the one it goes on with

}  // namespace plimsoll::engine
