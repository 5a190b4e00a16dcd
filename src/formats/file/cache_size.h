// The bound on what the cache folder holds.
#pragma once

#include <string>

#include "base/bytes.h"

namespace plimsoll::engine {

inline constexpr Bytes kCacheBytes = 32 * kGiB;

// Removes the oldest entries until the folder holds no more than $PLIMSOLL_CACHE_SIZE, or kCacheBytes where that is not
// set. What was written or used within the last hour stays: another process may be about to open it.
void keep_cache_small(const std::string& folder);

}  // namespace plimsoll::engine
