// The training loop: it trains window by window and epoch by epoch, validates, writes checkpoints, and reports to an
// observer.
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
  int64_t epoch = 0, step = 0;      // step: counts the optimizer steps of the whole run, from 1
  int64_t window = 0, windows = 0;  // the number of this window and of all windows in the epoch; windows = 0: unknown
  double loss = 0;                  // the loss of this batch alone, as train_on_batch reports it
  double seconds = 0;
  int64_t samples = 0;
  const std::vector<Metric>* running = nullptr;  // means over the epoch so far; the loss is first
  const std::vector<Metric>* own = nullptr;      // means over this step's samples alone; null unless needs_every_step()
  double waited = 0;                             // seconds that the run waited for data so far, since it began
};

struct EpochEvent {
  int64_t epoch = 0, epochs = 0;
  double seconds = 0;
  std::vector<Metric> metrics;  // validation metrics have names that begin with "val_"
  double learning_rate = 0;     // the rate of this epoch, if no schedule sets the rate
};

// The settings that an observer may change during training.
struct FitControl {
  double learning_rate = 0;  // takes effect with the next step, unless a schedule sets the rate
  bool stop = false;         // if true, training ends after this step or epoch
};

// Receives the events of a training run. If a function returns an error, the loop ends with that error.
class FitObserver {
 public:
  virtual ~FitObserver() = default;
  // `steps`: the optimizer steps that were made before a resume.
  virtual Status on_train_begin(int64_t /*steps*/, FitControl&) { return {}; }
  virtual Status on_epoch_begin(int64_t /*epoch*/, int64_t /*epochs*/, int64_t /*windows*/, FitControl&) { return {}; }
  virtual Status on_step(const StepEvent&, FitControl&) { return {}; }
  virtual Status on_epoch_end(const EpochEvent&, FitControl&) { return {}; }
  virtual Status on_train_end(FitControl&) { return {}; }
  virtual void on_note(const std::string&) {}      // "stopped early: ..."
  virtual void on_checkpoint(int64_t /*step*/) {}  // called after the checkpoint is written
  // Returns whether on_step() must be called before the next step begins. If so, a device with a queue waits for the
  // host after each step.
  virtual bool needs_every_step() const { return false; }
  // Asked once, before the run. If true, on_read() is called after each micro-batch was read, with the seconds that the
  // run waited for it.
  virtual bool times_reading() const { return false; }
  virtual void on_read(double /*seconds*/) {}
  // Asked once, before the run. If true, on_micro_batch() is called after each micro-batch, before the update: `step`
  // counts the updates before this one, `done` the samples of the window so far.
  virtual bool watches_micro_batches() const { return false; }
  virtual Status on_micro_batch(int64_t /*step*/, int64_t /*samples*/, int64_t /*done*/, int64_t /*window*/) {
    return {};
  }
};

struct FitOptions {
  int64_t epochs = 1;
  int64_t steps_per_epoch = 0;  // 0: one pass over all of the data
  uint64_t seed = 0;
  std::string checkpoint_folder;       // "": no checkpoints
  int64_t checkpoint_every_steps = 0;  // 0: at the end of each epoch
  int64_t keep_checkpoints = 2;        // including the newest
  bool resume = false;
  CallbackOptions callbacks;
  std::function<Status(const OptimizerState&)> save_best;  // writes the model when callbacks.save_best asks for it
  std::string best_weights_beside;          // without a checkpoint folder, the best weights are stored beside this file
  std::optional<double> learning_rate;      // from the command line; on resume it replaces the checkpoint's rate
  const std::atomic<bool>* stop = nullptr;  // set by a signal handler: finish the micro-batch and return
  nlohmann::json identity = nlohmann::json::object();  // a resumed run must have the same: model, data, batch, seed
  nlohmann::json validation_identity;                  // a resumed run should have the same; a difference gives a note
};

// Keys of the identity with special rules of comparison. A learning rate on the command line replaces a schedule. If
// the user did not set the batch size, it follows from the number of samples.
inline constexpr const char* kScheduleIdentity = "learning-rate schedule";
inline constexpr const char* kSamplesIdentity = "samples to train on";
inline constexpr const char* kBatchIdentity = "--batch-size";

struct FitResult {
  OptimizerState optimizer;
  int64_t steps = 0;  // made by this process
  bool interrupted = false;
  bool mid_window = false;            // interrupted inside a window: only a checkpoint allows an exact resume
  std::optional<int64_t> resumed_at;  // the step of the checkpoint
  bool stopped_early = false;         // by callbacks, in this process or an earlier one
  bool stopped = false;               // by the observer
  std::vector<EpochEvent> history;
  DataTimes data;  // of the reader of the training data, if it is read by position
};

// Evaluates the validation data after an epoch. Fails with kInterrupted if FitOptions::stop is set meanwhile.
using Validate = std::function<Result<std::vector<Metric>>()>;

// Trains on windows from `data`. If `validate` is empty, there is no validation. The session's weights must be loaded,
// unless options.resume finds a checkpoint. `reached` is the optimizer's state: on entry the state to start from, then
// the current state, which stays valid after an error.
Result<FitResult> fit(Session& session, WindowReader& data, const Validate& validate, OptimizerState& reached,
                      const FitOptions& options, FitObserver& observer);
// Trains on a source that is read by position. `validation` may be null.
Result<FitResult> fit(Session& session, BatchSource& data, BatchSource* validation, const OptimizerState& start,
                      const FitOptions& options, FitObserver& observer);

// Returns the mean loss and metrics over a whole source, as Keras's evaluate reports them.
Result<std::vector<Metric>> evaluate(Session& session, BatchSource& data, const std::atomic<bool>* stop = nullptr,
                                     const std::function<void(int64_t done)>& progress = {});

// Fails with P212 if the checkpoint in the folder belongs to a run whose identity differs from that of these options.
Status check_checkpoint(const std::string& folder, const FitOptions& options);
// Returns the plan of the run that wrote the checkpoint. A resumed run uses it, so that the results are the same to the
// bit.
Result<Plan> plan_of_checkpoint(const std::string& folder);
Result<int64_t> step_of_checkpoint(const std::string& folder);
Result<int64_t> epoch_of_checkpoint(const std::string& folder);  // the epoch in which a resumed run continues

}  // namespace plimsoll::engine
