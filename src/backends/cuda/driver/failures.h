// A kernel's run() returns nothing: what a library says when work is enqueued is kept here, and whoever next takes
// something from the device asks, so that nothing computed without it is used or saved.
#pragma once

#include "base/error.h"

namespace plimsoll::cuda {

void note_failure(Error error) noexcept;  // the first is kept
// The first thing that could not be enqueued since this was last asked, by the runtime's word or a library's.
Status enqueue_status();

}  // namespace plimsoll::cuda
