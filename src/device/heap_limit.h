// Limits the memory of this process while it reads a file or plans. An untrusted file that asks for too much then ends
// in std::bad_alloc instead of exhausting the machine. The limit (RLIMIT_DATA) is process-wide, so only the command
// line uses it, not programs that embed Plimsoll.
#pragma once

#include <sys/resource.h>

#include <new>

#include "base/bytes.h"

namespace plimsoll::engine {

class HeapLimit {
 public:
  // Reading and planning may always take this much, even if the budget leaves less. It is enough to tell the user what
  // a small model needs.
  static constexpr Bytes kGranted = 48 * kMiB;

  // While the object lives, the process may hold `budget` bytes, or kGranted more than it holds now if that is larger.
  explicit HeapLimit(Bytes budget);
  ~HeapLimit();
  HeapLimit(const HeapLimit&) = delete;
  HeapLimit& operator=(const HeapLimit&) = delete;

  // Returns whether the current or the last limit refused an allocation. A std::bad_alloc then means that the budget
  // was exceeded.
  static bool refused();

 private:
  rlimit before_{};
  std::new_handler handler_before_ = nullptr;
  bool set_ = false;
};

}  // namespace plimsoll::engine
