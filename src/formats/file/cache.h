// A cache for files that save work and can be recreated: decompressed or byte-swapped data that every later epoch reads
// with pread, compiled kernels, and measurements.
//
// The folder is used only if nobody but the user can write to it. Every entry has a digest of its contents, in the
// entry or in a file beside it, that is checked before use; a damaged entry is recreated. The digest finds damage only.
// Protection against forged entries comes from the folder's owner and mode. When an entry is added, the oldest entries
// are removed until all entries together take at most $PLIMSOLL_CACHE_SIZE (default 32 GiB). Entries used within the
// last hour are kept.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "formats/file/array_source.h"
#include "formats/file/file.h"

namespace plimsoll::engine {

// Returns $PLIMSOLL_CACHE, $XDG_CACHE_HOME/plimsoll or ~/.cache/plimsoll, and creates it if necessary. Fails with P602
// if it cannot be created or if others may write to it.
Result<std::string> cache_folder();

// Returns the path of the cached .npy file that holds `part` of `source` unpacked. Its name contains a hash of the
// source's path, size, modification time, inode and `part`, so a changed source is unpacked again. `fill` writes the
// file if it does not exist or is damaged.
Result<std::string> cached_file(const File& source, const std::string& part,
                                const std::function<Status(const std::string& path)>& fill);

// Returns the contents of a small entry; nullopt if it does not exist or cannot be trusted.
std::optional<std::string> read_cache_entry(const std::string& name);
// The same, but returns an error that says why an entry cannot be trusted, and creates no folder.
Result<std::optional<std::string>> find_cache_entry(const std::string& name);
void write_cache_entry(const std::string& name, std::string_view content);  // failures are ignored

}  // namespace plimsoll::engine
