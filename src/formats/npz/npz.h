// NumPy's .npz: a zip of .npy files. Arrays stored as np.savez does are read in place; those of np.savez_compressed are
// unpacked once into the cache.
#pragma once

#include <string>
#include <vector>

#include "formats/file/array_source.h"

namespace plimsoll::engine {

// The names of the arrays in the order of the file, without ".npy". Reads the directory alone.
Result<std::vector<std::string>> npz_names(const std::string& path);

// One array; P401 lists the names there are when `name` is not one of them.
Result<ArraySource> open_npz(const std::string& path, const std::string& name);

}  // namespace plimsoll::engine
