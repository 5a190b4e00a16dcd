// The window that comes next, with the learning rate it has.
#pragma once

#include "execute/weights.h"

namespace plimsoll {

// A schedule counts the updates made, and whether an overflow prevented the last one a device that runs ahead has not
// told yet: the window carries the rate for either case, and the device takes the right one. So at most one window may
// wait to be collected here.
Result<Window> next_window(Session& session, const OptimizerState& state, int64_t samples, uint64_t seed);

}  // namespace plimsoll
