// Returns how often this program has called operator new so far, in all threads.
#pragma once

#include <cstdint>

namespace plimsoll::engine {

int64_t allocations_so_far();

}  // namespace plimsoll::engine
