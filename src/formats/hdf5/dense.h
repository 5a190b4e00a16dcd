// Dense storage, HDF5's newer format for many links of a group or many attributes of an object. A fractal heap holds
// the messages, and a B-tree of version 2 holds a hash and a heap ID for each name.
#pragma once

#include <functional>

#include "formats/hdf5/reader.h"

namespace plimsoll::engine {

enum class Hdf5Dense : uint8_t { kLinks = 5, kAttributes = 8 };  // the B-tree's type

using Hdf5TakeMessage = std::function<Status(std::span<const std::byte> message)>;

// `info` is a link info or attribute info message. `take` gets the messages in the order of the hashes. It gets none if
// the object's own header holds them.
Status read_dense(Hdf5Reader& reader, Hdf5Dense kind, std::span<const std::byte> info, const Hdf5TakeMessage& take);

}  // namespace plimsoll::engine
