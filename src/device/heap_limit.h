// A limit on the memory that this process may take while it reads a file or plans: what a stranger's file asks for ends
// in std::bad_alloc, not in a machine without memory. It is the process's own (RLIMIT_DATA), so programs that embed
// Plimsoll do not use it; the command line does.
#pragma once

#include <sys/resource.h>

#include <new>

#include "base/bytes.h"

namespace plimsoll::engine {

class HeapLimit {
 public:
  // What reading and planning are granted where the budget leaves less: enough to say what a small model needs.
  static constexpr Bytes kGranted = 48 * kMiB;

  // Until the end of its life the process may hold `budget`, or kGranted more than it holds now.
  explicit HeapLimit(Bytes budget);
  ~HeapLimit();
  HeapLimit(const HeapLimit&) = delete;
  HeapLimit& operator=(const HeapLimit&) = delete;

  // Whether the limit that is set, or was set last, refused memory: a std::bad_alloc then stands for the budget.
  static bool refused();

 private:
  rlimit before_{};
  std::new_handler handler_before_ = nullptr;
  bool set_ = false;
};

}  // namespace plimsoll::engine
