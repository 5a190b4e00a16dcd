// NumPy's .npz: a zip of .npy files. Uncompressed arrays (np.savez) are read in place; compressed ones
// (np.savez_compressed) are unpacked once into the cache.
#pragma once

#include <string>
#include <vector>

#include "formats/file/array_source.h"

namespace plimsoll::engine {

// Returns the names of the arrays without ".npy", in the order of the file. Reads only the zip directory.
Result<std::vector<std::string>> npz_names(const std::string& path);

// Opens one array. Fails with P401, which lists the existing names, if there is no array `name`.
Result<ArraySource> open_npz(const std::string& path, const std::string& name);

}  // namespace plimsoll::engine
