// NumPy's .npy, versions 1.0 to 3.0 (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "formats/file/array_source.h"
#include "formats/file/file.h"

namespace plimsoll::engine {

// Reads the header and checks that the file has as many bytes as the header says. Fails with P401 if the file is not
// .npy, is truncated, is big-endian or in Fortran order, or holds objects, text, dates, complex numbers or structures.
Result<ArraySource> open_npy(const std::string& path);

// Same, for an .npy at [offset, offset + bytes) of an open file.
Result<ArraySource> read_npy(const File& file, int64_t offset, int64_t bytes, const std::string& label);

// Writes rows in order. The file appears under its name on commit().
class NpyWriter {
 public:
  static Result<NpyWriter> create(const std::string& path, DType dtype, const std::vector<int64_t>& dims);
  Status write(std::span<const std::byte> data);
  Status commit();  // fails with P101 if the number of bytes written does not match the shape

 private:
  NpyWriter(AtomicFile file, int64_t end) : file_(std::move(file)), end_(end) {}
  AtomicFile file_;
  int64_t end_ = 0;
};

// Returns everything before an .npy file's data: magic, version 1.0 (2.0 for a long header), and the header, padded so
// that the data starts at a multiple of 64. NumPy has no name for bfloat16, so it is written as '<V2', as ml_dtypes
// does.
std::string npy_header(DType dtype, const std::vector<int64_t>& dims);
// Same, for text of `width` bytes: dtype S.
std::string npy_text_header(int64_t width, const std::vector<int64_t>& dims);

}  // namespace plimsoll::engine
