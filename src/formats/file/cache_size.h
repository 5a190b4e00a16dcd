// The size limit of the cache folder.
#pragma once

#include <string>

#include "base/bytes.h"

namespace plimsoll::engine {

inline constexpr Bytes kCacheBytes = 32 * kGiB;

// Returns $PLIMSOLL_CACHE_SIZE, or kCacheBytes if it is not set.
Bytes cache_size();

// Removes the oldest entries until the folder holds at most $PLIMSOLL_CACHE_SIZE bytes, or kCacheBytes if that is not
// set. Keeps entries written or used within the last hour, because another process may be about to open them.
void keep_cache_small(const std::string& folder);

}  // namespace plimsoll::engine
