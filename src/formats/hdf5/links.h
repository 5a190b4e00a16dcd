// The members of a group. HDF5 has three ways to store them: a symbol table (a B-tree of names; what h5py writes by
// default), link messages in the group's object header, and, for many links, a fractal heap with a B-tree of version 2.
#pragma once

#include <string>
#include <vector>

#include "formats/hdf5/object_header.h"

namespace plimsoll {

struct Hdf5Link {
  std::string name;
  uint64_t address;  // of an object header
};

// Hard links only, sorted by name. Soft and external links point elsewhere and are left out.
Result<std::vector<Hdf5Link>> read_links(Hdf5Reader& reader, const Hdf5Header& group);

// Takes one link message; nothing is added for a soft or external one.
Status take_link(Hdf5Reader& reader, std::span<const std::byte> message, std::vector<Hdf5Link>& links);
// Adds a link after checking its name and the number of links.
Status add_link(Hdf5Reader& reader, std::string_view name, uint64_t address, std::vector<Hdf5Link>& links);

// The links of a fractal heap, found through the B-tree of their names.
Status read_dense_links(Hdf5Reader& reader, uint64_t heap, uint64_t names, std::vector<Hdf5Link>& links);

}  // namespace plimsoll
