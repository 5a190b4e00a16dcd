// Byte counts: constants, parsing and formatting.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace plimsoll::engine {

using Bytes = int64_t;

inline constexpr Bytes kKiB = 1024;
inline constexpr Bytes kMiB = 1024 * kKiB;
inline constexpr Bytes kGiB = 1024 * kMiB;
// The alignment of every value and workspace in an arena. A GPU reads its memory in units of 128 bytes, and an
// element-wise kernel reads rows of 256: values that are not aligned to 256 bytes cost an H200 up to 45 % of such a
// kernel's time (bench/results-h200.md).
inline constexpr Bytes kAlignment = 256;

constexpr Bytes align_up(Bytes bytes, Bytes alignment = kAlignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

// Parses "512MiB", "2GiB", "1.5GB" or "4096". Binary units are powers of 1024, decimal units powers of 1000.
Result<Bytes> parse_bytes(std::string_view text);

// Formats a size with three significant digits, in the largest binary unit in which it is at least 1: "9.1 GiB", "640
// KiB", "17 B".
std::string format_bytes(Bytes bytes);

}  // namespace plimsoll::engine
