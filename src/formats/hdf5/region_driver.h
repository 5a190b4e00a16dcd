// An HDF5 file that lies inside another file: reading weights in place in a .keras archive, and writing them there.
// HDF5 asks for bytes through a "virtual file driver"; this one adds an offset.
#pragma once

#include <optional>

#include "formats/file/file.h"
#include "formats/hdf5/handle.h"

namespace plimsoll {

// Must outlive the HDF5 file that is open on it. Reads from `input` or, when writing, from and to `output`.
struct Hdf5Region {
  const File* input = nullptr;
  AtomicFile* output = nullptr;
  int64_t offset = 0;
  int64_t bytes = 0;           // when writing: grows, and is right once HDF5 has closed the file
  std::optional<Error> error;  // the first that reading or writing met
};

// HDF5 1.10 does not survive a write that fails: its file can no longer be closed and the program crashes at its end.
// So a failed write is noted in `error` and HDF5 told that all is well; whoever writes looks there.
void hdf5_use_region(const Hdf5Id& access, Hdf5Region& region);

}  // namespace plimsoll
