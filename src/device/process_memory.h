// What the kernel says this process holds, and what of it is not ours. None of it allocates.
#pragma once

#include <string_view>

#include "base/bytes.h"

namespace plimsoll::engine {

Bytes resident_bytes();       // now (VmRSS)
Bytes data_bytes();           // of its own, writable, resident or not (VmData): what RLIMIT_DATA counts
Bytes peak_resident_bytes();  // since the process started (VmHWM); no less than any of the above

// The most that sanitizers hold, compiled in or loaded beside the program, of the host's memory or a GPU's: nobody's
// promise.
Bytes held_by_tools();
// What a user should know of it: a tool whose memory has no bound switches a check off. "" without one.
std::string_view tools_note();

}  // namespace plimsoll::engine
