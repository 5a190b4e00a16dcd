// The memory that this process holds according to the operating system, and the part of it that belongs to tools. None
// of these functions allocates.
#pragma once

#include <string_view>

#include "base/bytes.h"

namespace plimsoll::engine {

Bytes resident_bytes();       // now (VmRSS)
Bytes data_bytes();           // private writable memory, resident or not (VmData); RLIMIT_DATA limits it
Bytes swapped_bytes();        // of this process, now (VmSwap)
Bytes peak_resident_bytes();  // since the process started (VmHWM); never below a resident_bytes() returned before

// Upper bound on the memory, of host or GPU, that sanitizers hold, whether compiled in or loaded. The budget does not
// include it.
Bytes held_by_tools();
// Returns a note for the user if a tool with unbounded memory disables a check, else "".
std::string_view tools_note();

}  // namespace plimsoll::engine
