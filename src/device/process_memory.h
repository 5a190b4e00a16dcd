// What the kernel says this process holds. None of it allocates.
#pragma once

#include "base/bytes.h"

namespace plimsoll {

Bytes resident_bytes();       // now (VmRSS)
Bytes peak_resident_bytes();  // since the process started (VmHWM); no less than any of the above

}  // namespace plimsoll
