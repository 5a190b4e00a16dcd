// Shows progress as Keras does: a bar on a terminal, otherwise one line per epoch.
#pragma once

#include <functional>
#include <string>

#include "execute/fit.h"

namespace plimsoll::engine {

class ProgressBar {
 public:
  // `held` returns the bytes that the process holds now in the memory that the budget limits.
  ProgressBar(bool quiet, Bytes budget, std::function<Bytes()> held);

  void on_epoch_begin(int64_t epoch, int64_t epochs, int64_t windows);
  void on_step(const StepEvent& event);
  void on_epoch_end(const EpochEvent& event);
  void on_note(const std::string& text);
  // What reading the data is called when the device waits for it: "JPEG decode".
  void name_reading(std::string name) { reading_ = std::move(name); }
  void end_line();  // ends the line of an unfinished bar, before other output

 private:
  std::string memory_text() const;
  std::string idle_text() const;
  std::string clear_rest(size_t columns);

  bool quiet_, terminal_, color_, drawing_ = false;
  Bytes budget_;
  std::function<Bytes()> held_;
  double epoch_seconds_ = 0, drawn_at_ = -1;
  int64_t epoch_samples_ = 0, epoch_steps_ = 0,
          windows_ = 0;  // epoch_steps_ counts only steps of this process, not those before a resume
  size_t drawn_columns_ = 0;
  std::string reading_ = "reading the data";
  double waited_ = 0, waited_before_ = 0;  // for data since the run began; when the epoch began
};

}  // namespace plimsoll::engine
