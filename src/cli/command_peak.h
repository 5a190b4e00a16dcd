// `plimsoll top -- COMMAND`: runs a command and reports how much memory it really took.
#pragma once

#include <string>
#include <vector>

#include "device/nvml.h"

namespace plimsoll::engine {

struct CommandPeak {
  int exit_code = 0;
  int signal = 0;  // that ended it; 0: none
  double seconds = 0;
  Bytes largest = 0;   // peak of its largest process
  bool exact = false;  // `largest` was counted by the kernel, not sampled
  Bytes together = 0;  // peak of all its processes at one time, sampled; shared pages once
  int64_t processes = 0;
  Bytes swapped = 0;  // most that was swapped out
  struct Gpu {
    int index = 0;
    Bytes peak = 0;  // by its processes, or the rise of what is in use if the driver hides them
    bool by_process = false;
  };
  std::vector<Gpu> gpus;

  Bytes peak() const { return processes > 1 && together > largest ? together : largest; }
};

// The command has the terminal, the input and the output of this process. Signals of the terminal reach it directly.
Result<CommandPeak> run_command(const std::vector<std::string>& command, const Nvml* nvml);

}  // namespace plimsoll::engine
