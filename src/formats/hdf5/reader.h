// Reads the structures of an HDF5 file that a stranger may have written. The format is described in "HDF5 File Format
// Specification Version 3.0"; the names of structures and fields here are the specification's.
//
// Every read lies inside the region, every structure is limited (formats/limits.h), and so is the sum of all of them: a
// file whose structures point at each other in a circle ends in an error. The checksums of newer structures are not
// verified: nothing here relies on them, and damage is found by the CRC32 of the archive.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "formats/file/file.h"
#include "formats/hdf5/cursor.h"

namespace plimsoll::engine {

inline constexpr uint64_t kHdf5Nowhere = ~uint64_t{0};
inline constexpr std::string_view kHdf5Mark = "bfloat16";  // in the attribute "dtype" of a dataset

// Where an HDF5 file lies, and what its superblock says of all of it.
struct Hdf5Region {
  File file;
  int64_t offset = 0, bytes = 0;  // in `file`
  std::string label;              // what messages call it
  int64_t base = 0;               // what addresses count from, relative to `offset`
  size_t address_bytes = 8, length_bytes = 8;
  uint64_t root = kHdf5Nowhere;  // the object header of the root group

  uint64_t address(Hdf5Cursor& cursor) const { return cursor.address(address_bytes); }
  uint64_t length(Hdf5Cursor& cursor) const { return cursor.number(length_bytes); }
};

// P213, with what is wrong.
tl::unexpected<Error> bad_weights(const std::string& label, std::string_view what);

// One walk through a region: counts what it reads. A new walk begins with a new reader.
class Hdf5Reader {
 public:
  explicit Hdf5Reader(const Hdf5Region& region);

  const Hdf5Region& region() const { return region_; }
  tl::unexpected<Error> damaged(std::string_view what) const { return bad_weights(region_.label, what); }

  // A structure of the file. `what` names it in messages.
  Result<std::vector<std::byte>> block(uint64_t address, uint64_t bytes, std::string_view what);
  // The same for a structure whose first bytes tell its size: ends early where the file does.
  Result<std::vector<std::byte>> start_of(uint64_t address, uint64_t bytes, std::string_view what);
  // Whether the object of this number in a global heap, where texts of any length lie, is kHdf5Mark.
  Result<bool> is_mark(uint64_t heap, uint64_t index);
  // Elements, into memory that the caller already has.
  Status elements(uint64_t address, std::span<std::byte> out) const;

 private:
  Result<std::vector<bool>> read_marks(uint64_t heap);

  const Hdf5Region& region_;
  int64_t blocks_left_, bytes_left_;
  std::map<uint64_t, std::vector<bool>> marks_;  // by heap and number; of the last few heaps, as datasets share them
};

// Finds the superblock and fills in what it says. P213 when this is not HDF5 or ends too early.
Status read_superblock(Hdf5Region& region);

}  // namespace plimsoll::engine
