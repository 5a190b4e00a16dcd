// The members of a group. HDF5 has three ways to store them: a symbol table (a B-tree of names; what h5py writes by
// default), link messages in the group's object header, and, for many links, a fractal heap with a B-tree of version 2.
#pragma once

#include <string>
#include <vector>

#include "formats/hdf5/object_header.h"

namespace plimsoll::engine {

struct Hdf5Link {
  std::string name;
  uint64_t address;  // of an object header
};

// Hard links only, sorted by name. Soft and external links point elsewhere and are left out.
Result<std::vector<Hdf5Link>> read_links(Hdf5Reader& reader, const Hdf5Header& group);

}  // namespace plimsoll::engine
