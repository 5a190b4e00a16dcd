#include "formats/file/array_source.h"

#include <fmt/format.h>

namespace plimsoll::engine {

std::optional<Bytes> array_bytes(DType dtype, const std::vector<int64_t>& dims) {
  constexpr Bytes kMost = Bytes{1} << 62;
  Bytes bytes = size_of(dtype);
  bool empty = false;
  for (const int64_t d : dims) {
    if (d < 0) return std::nullopt;
    if (d == 0) empty = true;
    // An array with no elements must not hide an overflow, because rows() * row_bytes() is computed later, dimension by
    // dimension.
    else if (bytes > kMost / d)
      return std::nullopt;
    else
      bytes *= d;
  }
  return empty ? 0 : bytes;
}

std::string dims_text(const std::vector<int64_t>& dims) {
  return dims.size() == 1 ? fmt::format("({},)", dims[0]) : fmt::format("({})", fmt::join(dims, ", "));
}

}  // namespace plimsoll::engine
