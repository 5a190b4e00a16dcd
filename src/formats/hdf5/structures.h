// The structures of an HDF5 file that we write: a superblock of version 0, object headers of version 1, groups as
// symbol tables and contiguous datasets. Every HDF5 since 1.6 reads them, and they are what h5py writes by default.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/tensor.h"
#include "formats/file/file.h"

namespace plimsoll::engine {

// Where a bfloat16 dataset's mark, the text "bfloat16", lies in a global heap.
struct Hdf5Mark {
  uint64_t heap = 0;
  uint32_t index = 0;
};

// The datatype message of our own types. bfloat16 is opaque and bool an enumeration, as h5py does it.
std::string hdf5_datatype(DType dtype);

struct Hdf5DatasetText {
  std::string datatype;
  std::vector<int64_t> shape;
  uint64_t address = 0;  // of its elements, or nowhere
  int64_t bytes = 0;
  std::string fill;  // one element; empty: zeros
  const Hdf5Mark* mark = nullptr;
};
std::string hdf5_dataset_header(const Hdf5DatasetText& dataset);

inline constexpr size_t kHdf5MarksPerHeap = 160;
inline constexpr Bytes kHdf5MarkHeapBytes = 4096;  // the smallest that HDF5 makes
std::string hdf5_mark_heap(size_t marks);          // at most kHdf5MarksPerHeap

struct Hdf5Member {
  std::string_view name;
  uint64_t address;
};
struct Hdf5Group {
  uint64_t header, tree, heap;  // addresses
};
// Writes a group at the position of `file`, which addresses count from `begin`. Members are sorted by name.
Result<Hdf5Group> hdf5_write_group(AtomicFile& file, int64_t begin, const std::vector<Hdf5Member>& members);
int64_t hdf5_group_bytes(size_t members, size_t name_bytes);  // at most

inline constexpr Bytes kHdf5SuperblockBytes = 96;
std::string hdf5_superblock(const Hdf5Group& root, uint64_t end);

}  // namespace plimsoll::engine
