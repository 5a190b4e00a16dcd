// The dictionary in an .npy header: a Python literal with exactly the keys descr, fortran_order and shape.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace plimsoll::engine {

struct NpyHeader {
  std::string descr;  // "<f4"; a structured type is given as its text, which begins with '['
  bool fortran_order = false;
  std::vector<int64_t> shape;
};

// An error says what was expected at which character of the header. The caller adds the file's name.
Result<NpyHeader> parse_npy_header(std::string_view text);

}  // namespace plimsoll::engine
