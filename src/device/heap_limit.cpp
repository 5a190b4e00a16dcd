#include "device/heap_limit.h"

#include <algorithm>
#include <atomic>

#include "base/checked.h"
#include "device/process_memory.h"

namespace plimsoll::engine {
namespace {

std::atomic<bool> has_refused{false};

void on_no_memory() {
  has_refused = true;
  throw std::bad_alloc();
}

}  // namespace

HeapLimit::HeapLimit(Bytes budget) {
  // Sanitizers reserve terabytes of memory for themselves.
  if (held_by_tools() > 0 || getrlimit(RLIMIT_DATA, &before_) != 0) return;
  const auto most = checked_add(data_bytes(), std::max(budget - resident_bytes(), kGranted));
  if (!most || static_cast<rlim_t>(*most) >= before_.rlim_cur) return;
  const rlimit limit{static_cast<rlim_t>(*most), before_.rlim_max};
  set_ = setrlimit(RLIMIT_DATA, &limit) == 0;
  if (!set_) return;
  has_refused = false;
  handler_before_ = std::set_new_handler(on_no_memory);
}

HeapLimit::~HeapLimit() {
  if (!set_) return;
  setrlimit(RLIMIT_DATA, &before_);
  std::set_new_handler(handler_before_);
}

bool HeapLimit::refused() {
  return has_refused;
}

}  // namespace plimsoll::engine
