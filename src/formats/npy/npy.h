// NumPy's .npy, versions 1.0 to 3.0 (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "formats/file/array_source.h"
#include "formats/file/file.h"

namespace plimsoll::engine {

// Reads the header and checks that the file holds as many bytes as it promises. P401 for what is not an .npy file, is
// cut short, is big-endian, in Fortran order, or holds objects, text, dates, complex numbers or structures.
Result<ArraySource> open_npy(const std::string& path);

// The same for an .npy that lies at [offset, offset + bytes) of an open file.
Result<ArraySource> read_npy(const File& file, int64_t offset, int64_t bytes, const std::string& label);

// Writes rows as they come; the file appears under its name on commit().
class NpyWriter {
 public:
  static Result<NpyWriter> create(const std::string& path, DType dtype, const std::vector<int64_t>& dims);
  Status write(std::span<const std::byte> data);
  Status commit();  // P101 if the bytes written are not what the shape says

 private:
  NpyWriter(AtomicFile file, int64_t end) : file_(std::move(file)), end_(end) {}
  AtomicFile file_;
  int64_t end_ = 0;
};

// The preamble of an .npy file: magic, version 1.0 (or 2.0 when long), header, padded so that data starts at a multiple
// of 64. bfloat16 has no NumPy name: such data is written as '<V2', as ml_dtypes does.
std::string npy_header(DType dtype, const std::vector<int64_t>& dims);

}  // namespace plimsoll::engine
