// Strings of one size in a file, as NumPy's dtypes U and S and HDF5's text of fixed length store them.
#pragma once

#include <memory>

#include "data/rows.h"
#include "formats/file/array_source.h"
#include "formats/file/file.h"

namespace plimsoll::engine {

// `array` is one of strings. `file` is its file.
std::shared_ptr<StringSource> string_array(const ArraySource& array, std::shared_ptr<const File> file);

}  // namespace plimsoll::engine
