// The elements of a dataset as the file stores them, and their conversion.
#pragma once

#include <functional>

#include "formats/hdf5/dataset.h"

namespace plimsoll::engine {

// Takes elements that belong at byte `offset` of the dataset, row-major, in the file's own type. Pieces come in any
// order, and a later one replaces an earlier one. A piece of a type with a dtype holds whole elements.
using Hdf5Place = std::function<Status(int64_t offset, std::span<const std::byte> piece)>;

// Hands all elements to `place`. The dataset must not be unreadable. Holds 64 KiB, or two chunks.
Status read_elements(Hdf5Reader& reader, const Hdf5Dataset& dataset, const Hdf5Place& place);
// The same for a dataset in chunks, without what no chunk holds.
Status read_chunks(Hdf5Reader& reader, const Hdf5Dataset& dataset, const Hdf5Place& place);

// Writes whole elements of `from` to `to` as `dtype`: the nearest value, integers cut to their range. bfloat16 and bool
// are converted to themselves only.
void convert_elements(const Hdf5Element& element, std::span<const std::byte> from, DType dtype, std::byte* to);

}  // namespace plimsoll::engine
