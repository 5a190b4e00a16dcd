// The host's memory, and how much of it this process may take under its cgroup limits.
#pragma once

#include "base/bytes.h"

namespace plimsoll::engine {

Bytes host_memory_bytes();
Bytes available_host_bytes();  // of the whole machine
Bytes free_host_bytes();       // the same, but no more than the cgroups of this process allow

}  // namespace plimsoll::engine
