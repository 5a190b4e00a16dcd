// The members of a group. HDF5 stores them in one of three ways: as a symbol table (a B-tree of names, which h5py
// writes by default), as link messages in the group's object header, or, for many links, as a fractal heap with a
// B-tree of version 2.
#pragma once

#include <string>
#include <vector>

#include "formats/hdf5/object_header.h"

namespace plimsoll::engine {

struct Hdf5Link {
  std::string name;
  uint64_t address;  // address of an object header
};

// Returns the hard links, sorted by name. Soft and external links are left out.
Result<std::vector<Hdf5Link>> read_links(Hdf5Reader& reader, const Hdf5Header& group);

}  // namespace plimsoll::engine
