// Progress in Keras's manner: a bar on a terminal, a line an epoch elsewhere.
#pragma once

#include <functional>
#include <string>

#include "execute/fit.h"

namespace plimsoll::engine {

class ProgressBar {
 public:
  // `held`: what the process holds now of the memory the budget is of.
  ProgressBar(bool quiet, Bytes budget, std::function<Bytes()> held);

  void on_epoch_begin(int64_t epoch, int64_t epochs, int64_t windows);
  void on_step(const StepEvent& event);
  void on_epoch_end(const EpochEvent& event);
  void on_note(const std::string& text);
  void end_line();  // of a bar that is still being redrawn, before something else is said

 private:
  std::string memory_text() const;
  std::string clear_rest(size_t columns);

  bool quiet_, terminal_, color_, drawing_ = false;
  Bytes budget_;
  std::function<Bytes()> held_;
  double epoch_seconds_ = 0, drawn_at_ = -1;
  int64_t epoch_samples_ = 0, epoch_steps_ = 0, windows_ = 0;  // steps: of this process, which may have resumed
  size_t drawn_columns_ = 0;
};

}  // namespace plimsoll::engine
