// The HDF5 structures that Plimsoll writes: a superblock of version 0, object headers of version 1, groups as symbol
// tables, and contiguous datasets. Every HDF5 library since 1.6 reads them, and h5py writes the same by default.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor.h"
#include "formats/file/file.h"

namespace plimsoll::engine {

// The position, in a global heap, of the text "bfloat16" that marks a bfloat16 dataset.
struct Hdf5Mark {
  uint64_t heap = 0;
  uint32_t index = 0;
};

// Returns the datatype message of one of our types. As in h5py, bfloat16 is opaque and bool is an enumeration.
std::string hdf5_datatype(DType dtype);

struct Hdf5DatasetText {
  std::string datatype;
  std::vector<int64_t> shape;
  uint64_t address = 0;  // address of the elements, or nowhere
  int64_t bytes = 0;
  std::string fill;  // one element; empty: zeros
  const Hdf5Mark* mark = nullptr;
};
std::string hdf5_dataset_header(const Hdf5DatasetText& dataset);

inline constexpr size_t kHdf5MarksPerHeap = 160;
inline constexpr Bytes kHdf5MarkHeapBytes = 4096;  // the smallest heap that HDF5 makes
std::string hdf5_mark_heap(size_t marks);          // at most kHdf5MarksPerHeap

// A global heap with texts; the first is number 1. At most 65,535 of them.
std::string hdf5_text_heap(const std::vector<std::string_view>& texts);
// The body of an attribute message: one text of any length, which is object `index` of a heap.
std::string hdf5_text_attribute(std::string_view name, size_t bytes, uint64_t heap, uint32_t index);
// The same for a list, which the message itself holds. Returns "" if it is too long for a message.
std::string hdf5_list_attribute(std::string_view name, std::span<const std::string> texts);

struct Hdf5Member {
  std::string_view name;
  uint64_t address;
};
struct Hdf5Group {
  uint64_t header, tree, heap;  // addresses
};
// Writes a group at the position of `file`. Addresses count from `begin`. Members must be sorted by name. `attributes`
// are the bodies of attribute messages.
Result<Hdf5Group> hdf5_write_group(AtomicFile& file, int64_t begin, const std::vector<Hdf5Member>& members,
                                   const std::vector<std::string>& attributes = {});
int64_t hdf5_group_bytes(size_t members, size_t name_bytes);  // an upper bound

inline constexpr Bytes kHdf5SuperblockBytes = 96;
std::string hdf5_superblock(const Hdf5Group& root, uint64_t end);

}  // namespace plimsoll::engine
