// What the kernel says this process holds. None of it allocates.
#pragma once

#include "base/bytes.h"

namespace plimsoll {

Bytes resident_bytes();       // now (VmRSS)
Bytes peak_resident_bytes();  // since the process started, or since the last reset (VmHWM)
bool reset_peak_resident();   // false where the kernel does not allow it

}  // namespace plimsoll
