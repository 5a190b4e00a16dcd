#include "device/heap_limit.h"

#include <algorithm>
#include <atomic>

#include "base/checked.h"
#include "device/process_memory.h"

namespace plimsoll {
namespace {

std::atomic<int> limits{0};

}  // namespace

HeapLimit::HeapLimit(Bytes budget) {
  // Sanitizers reserve memory of their own by the terabyte.
  if (held_by_tools() > 0 || getrlimit(RLIMIT_DATA, &before_) != 0) return;
  const auto most = checked_add(data_bytes(), std::max(budget - resident_bytes(), kGranted));
  if (!most || static_cast<rlim_t>(*most) >= before_.rlim_cur) return;
  const rlimit limit{static_cast<rlim_t>(*most), before_.rlim_max};
  set_ = setrlimit(RLIMIT_DATA, &limit) == 0;
  if (set_) ++limits;
}

HeapLimit::~HeapLimit() {
  if (!set_) return;
  setrlimit(RLIMIT_DATA, &before_);
  --limits;
}

bool HeapLimit::active() {
  return limits > 0;
}

}  // namespace plimsoll
