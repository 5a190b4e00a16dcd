// Strings as rows of one size, for what copies arrays: each string is a cell of its length in 64 bits and its bytes,
// filled up to the longest.
#pragma once

#include <functional>
#include <string_view>

#include "data/array_stream.h"
#include "data/match.h"

namespace plimsoll::engine {

// A column whose rows are the cells of a sample. Reads all strings, to find the longest.
Result<NamedColumn> column_of_cells(std::string name, FoundArray strings);

// Calls use(string) for every cell in `rows`, which are rows of an array of strings.
Status for_cells(const StreamedArray& array, std::span<const std::byte> rows,
                 const std::function<Status(std::string_view)>& use);

}  // namespace plimsoll::engine
