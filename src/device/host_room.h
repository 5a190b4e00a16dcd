// What the host has of memory, and what of it this process may take: the limits of control groups included.
#pragma once

#include "base/bytes.h"

namespace plimsoll::engine {

Bytes host_memory_bytes();
Bytes available_host_bytes();  // of the whole machine
Bytes free_host_bytes();       // the same within the limits of this process's control groups

}  // namespace plimsoll::engine
