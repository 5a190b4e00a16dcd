// Reads the structures of an untrusted HDF5 file. The format is described in "HDF5 File Format Specification Version
// 3.0"; structures and fields have the specification's names.
//
// Every read is checked to lie inside the region. The size of every structure is limited (formats/limits.h), and so is
// the sum of all sizes, so a file whose structures form a cycle ends in an error. The checksums of newer structures are
// not verified: no check relies on them, and the archive's CRC32 finds damage.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/file/file.h"
#include "formats/hdf5/cursor.h"

namespace plimsoll::engine {

inline constexpr uint64_t kHdf5Nowhere = ~uint64_t{0};
inline constexpr std::string_view kHdf5Mark = "bfloat16";  // the value of a dataset's attribute "dtype"

// The position of an HDF5 file, and the contents of its superblock.
struct Hdf5Region {
  File file;
  int64_t offset = 0, bytes = 0;  // position in `file`
  std::string label;              // the name in messages
  int64_t base = 0;               // the position that addresses count from, relative to `offset`
  size_t address_bytes = 8, length_bytes = 8;
  uint64_t root = kHdf5Nowhere;  // the object header of the root group

  uint64_t address(Hdf5Cursor& cursor) const { return cursor.address(address_bytes); }
  uint64_t length(Hdf5Cursor& cursor) const { return cursor.number(length_bytes); }
};

// Returns P213 with a description of the problem.
tl::unexpected<Error> bad_weights(const std::string& label, std::string_view what);

// Reads a region once and limits the total number of bytes read. Use a new reader to read the region again.
class Hdf5Reader {
 public:
  explicit Hdf5Reader(const Hdf5Region& region);

  const Hdf5Region& region() const { return region_; }
  tl::unexpected<Error> damaged(std::string_view what) const { return bad_weights(region_.label, what); }

  // Reads a structure of the file. `what` is its name in messages.
  Result<std::vector<std::byte>> block(uint64_t address, uint64_t bytes, std::string_view what);
  // Reads a structure whose first bytes give its size. Returns fewer bytes if the file ends earlier.
  Result<std::vector<std::byte>> start_of(uint64_t address, uint64_t bytes, std::string_view what);
  // Returns whether the object with this number in a global heap is kHdf5Mark. Global heaps hold texts of variable
  // length.
  Result<bool> is_mark(uint64_t heap, uint64_t index);
  // Returns that object's bytes. They stay valid until the next call.
  Result<std::string_view> heap_text(uint64_t heap, uint64_t index);
  // Reads elements into the caller's memory.
  Status elements(uint64_t address, std::span<std::byte> out) const;

 private:
  Result<std::vector<bool>> read_marks(uint64_t heap);
  Result<std::vector<std::byte>> read_heap(uint64_t heap, Bytes most);

  const Hdf5Region& region_;
  int64_t blocks_left_, bytes_left_;
  // By heap and object number; only the last few heaps, which datasets share.
  std::map<uint64_t, std::vector<bool>> marks_;
  // The heap that heap_text() read last, and the texts in it by object number.
  std::optional<uint64_t> heap_;
  std::vector<std::byte> heap_bytes_;
  std::vector<std::string_view> heap_texts_;
};

// Finds the superblock and fills in `region`. Fails with P213 if the file is not HDF5 or ends too early.
Status read_superblock(Hdf5Region& region);

}  // namespace plimsoll::engine
