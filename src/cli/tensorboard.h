// `--tensorboard DIR`: event files with the names and runs of Keras's callback, and what Plimsoll knows beside: memory
// against the budget, and what the time of a step went to.
#pragma once

#include <optional>
#include <string>

#include "execute/fit.h"
#include "formats/tensorboard/event_file.h"

namespace plimsoll::engine {

class TensorBoardLog {
 public:
  struct Setup {
    std::string folder;            // "": writes nothing
    int64_t histogram_epochs = 0;  // weights' histograms every so many epochs; 0: none
    bool validates = false;
    Bytes budget = 0, arena = 0;
    std::function<Bytes()> held;
    const Session* session = nullptr;
  };
  static Result<TensorBoardLog> open(Setup setup);

  bool is_on() const { return train_.has_value(); }
  void on_read(double seconds) { read_seconds_ += seconds; }
  void on_step(const StepEvent& event);
  Status on_epoch_end(const EpochEvent& event);
  Status failed() const;

 private:
  Status histograms(int64_t epoch);

  Setup setup_;
  std::optional<EventFile> train_, validation_;
  double read_seconds_ = 0;   // since the last step
  double since_scalars_ = 0;  // seconds of steps without scalars
  bool has_scalars_ = false;
  int64_t steps_ = 0;
};

}  // namespace plimsoll::engine
