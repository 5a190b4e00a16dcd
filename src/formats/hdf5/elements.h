// The elements of a dataset in the file's type, and their conversion.
#pragma once

#include <functional>

#include "formats/hdf5/dataset.h"

namespace plimsoll::engine {

// Receives elements in the file's type for byte `offset` of the row-major dataset. Pieces may come in any order, and a
// later piece overwrites an earlier one. If the type has a dtype, a piece holds whole elements.
using Hdf5Place = std::function<Status(int64_t offset, std::span<const std::byte> piece)>;

// Passes all elements to `place`. The dataset must not be unreadable. Buffers 64 KiB, or two chunks.
Status read_elements(Hdf5Reader& reader, const Hdf5Dataset& dataset, const Hdf5Place& place);
// Same for a chunked dataset. Elements that are in no chunk are not passed.
Status read_chunks(Hdf5Reader& reader, const Hdf5Dataset& dataset, const Hdf5Place& place);

// Converts whole elements of `from` to `dtype` and writes them to `to`. Numbers are rounded to the nearest value;
// integers are clamped to the range. bfloat16 and bool can only be converted to themselves.
void convert_elements(const Hdf5Element& element, std::span<const std::byte> from, DType dtype, std::byte* to);

}  // namespace plimsoll::engine
