// What saves work and may be lost: compressed or byte-swapped data unpacked once, so that every later epoch can pread
// it; compiled kernels; measurements.
//
// Nobody but the user can write in the folder, or it is not used. Every entry has a digest of its contents beside it or
// in it, checked before use: a damaged entry is made again. The digest finds damage; that nobody else can put an entry
// there, with its digest, follows from the folder's owner and mode. When an entry is added, the oldest ones go until
// all of them take no more than $PLIMSOLL_CACHE_SIZE (32 GiB); what was used within the last hour stays.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "formats/file/array_source.h"
#include "formats/file/file.h"

namespace plimsoll::engine {

// $PLIMSOLL_CACHE, $XDG_CACHE_HOME/plimsoll or ~/.cache/plimsoll, made if it is not there. P602 when it cannot be made
// or others may write there.
Result<std::string> cache_folder();

// The .npy file in the cache that holds `part` of `source` unpacked. Its name carries a hash of the source's path,
// size, time of change, inode and `part`, so a changed source is unpacked again. `fill` writes it when it is not there
// yet, or when what is there is not what was written.
Result<std::string> cached_file(const File& source, const std::string& part,
                                const std::function<Status(const std::string& path)>& fill);

// A small entry by its name. Nothing where there is none, or none that can be trusted.
std::optional<std::string> read_cache_entry(const std::string& name);
void write_cache_entry(const std::string& name, std::string_view content);  // failures are ignored

}  // namespace plimsoll::engine
