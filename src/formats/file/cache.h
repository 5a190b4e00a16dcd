// Where compressed or byte-swapped data is unpacked once, so that every later epoch can pread it.
#pragma once

#include <functional>
#include <string>

#include "formats/file/array_source.h"
#include "formats/file/file.h"

namespace plimsoll {

// $PLIMSOLL_CACHE, $XDG_CACHE_HOME/plimsoll or ~/.cache/plimsoll.
Result<std::string> cache_folder();

// The .npy file in the cache that holds `part` of `source` unpacked. Its name carries a hash of the source's path,
// size, time of change, inode and `part`, so a changed source is unpacked again. `fill` writes it when it is not there
// yet.
Result<std::string> cached_file(const File& source, const std::string& part,
                                const std::function<Status(const std::string& path)>& fill);

}  // namespace plimsoll
