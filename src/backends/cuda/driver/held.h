// The GPU memory that this process has allocated, as counted by the driver.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"

namespace plimsoll::engine::cuda {

// The free memory of a card, and the other processes that hold the rest as far as the driver reports them. All fields
// are 0 without NVML.
struct CardMemory {
  Bytes free = 0, total = 0;
  std::vector<std::string> holders;  // "python3, process 4711: 12.3 GiB"
};
CardMemory card_memory(int ordinal);

class HeldMemory {
 public:
  // Must be called before this process creates its first context on that GPU. Counts by NVML's list of processes if it
  // contains this process. If it does not (containers, WSL), counts how much the card's free memory fell since this
  // call.
  static Result<HeldMemory> open(int ordinal);

  Bytes before() const { return state_->before; }  // allocated bytes at open()
  Bytes now() const;                               // 0 before open()
  Bytes peak() const;
  const std::string& counted_by() const { return state_->counted_by; }

 private:
  struct State {
    void* device = nullptr;  // the NVML device
    Bytes used_before = 0;   // used on the card by all processes
    Bytes before = 0;        // used by this process
    Bytes peak = 0;
    std::string counted_by;
  };
  std::shared_ptr<State> state_;
};

}  // namespace plimsoll::engine::cuda
