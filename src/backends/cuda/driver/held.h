// What this process holds of a GPU's memory, as the driver counts it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"

namespace plimsoll::engine::cuda {

// What is free of a card, and which other processes hold the rest, as far as the driver tells. All 0 where there is no
// NVML to ask.
struct CardMemory {
  Bytes free = 0, total = 0;
  std::vector<std::string> holders;  // "python3, process 4711: 12.3 GiB"
};
CardMemory card_memory(int ordinal);

class HeldMemory {
 public:
  // Before the first context of this process on that GPU. By NVML's list of processes where we are in it; where it
  // cannot see us (containers, WSL) by how much less is free than was at this call.
  static Result<HeldMemory> open(int ordinal);

  Bytes before() const { return state_->before; }  // at open()
  Bytes now() const;                               // 0 before open()
  Bytes peak() const;
  const std::string& counted_by() const { return state_->counted_by; }

 private:
  struct State {
    void* device = nullptr;  // NVML's
    Bytes used_before = 0;   // of the card, by everybody
    Bytes before = 0;        // by this process
    Bytes peak = 0;
    std::string counted_by;
  };
  std::shared_ptr<State> state_;
};

}  // namespace plimsoll::engine::cuda
