// A row-major, little-endian array at an offset of a file. Every array format is reduced to this. The data stage reads
// its rows with pread; nothing here holds elements.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/tensor.h"

namespace plimsoll::engine {

// What the elements of an array of strings are.
enum class TextKind : uint8_t { kNumbers, kBytes, kUtf32 };

struct ArraySource {
  std::string label;   // the name in messages: "data.npz: x"
  std::string path;    // the file to pread: the user's file, or one in the cache
  int64_t offset = 0;  // offset of the first element in `path`
  DType dtype = DType::kFloat32;
  std::vector<int64_t> dims;  // each dimension may be 0; empty for a scalar
  // Strings: uint8, and the last dimension is the bytes of one, which ends with zeros if it is shorter.
  TextKind text = TextKind::kNumbers;

  int64_t rows() const { return dims.empty() ? 1 : dims[0]; }
  int64_t row_elements() const {
    int64_t n = 1;
    for (size_t i = 1; i < dims.size(); ++i) n *= dims[i];
    return n;
  }
  Bytes row_bytes() const { return row_elements() * size_of(dtype); }
  Bytes bytes() const { return rows() * row_bytes(); }
};

// Returns the product of `dims` times the element size; nullopt if a dimension is negative or the product exceeds 2^62.
std::optional<Bytes> array_bytes(DType dtype, const std::vector<int64_t>& dims);

std::string dims_text(const std::vector<int64_t>& dims);  // "(60000, 28, 28)", as NumPy prints it

}  // namespace plimsoll::engine
