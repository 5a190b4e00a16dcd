// Byte counts, as users write and read them.
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
// Of every value and workspace in an arena. A GPU's memory is read 128 bytes at a time and a row of a pass 256: values
// that begin in between cost an H200 up to 45 % of a pass's time (bench/results-h200.md).
inline constexpr Bytes kAlignment = 256;

constexpr Bytes align_up(Bytes bytes, Bytes alignment = kAlignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

// "512MiB", "2GiB", "1.5GB", "4096"; binary units in powers of 1024, decimal ones in powers of 1000.
Result<Bytes> parse_bytes(std::string_view text);

// Three significant digits in the largest binary unit that keeps at least one: "9.1 GiB", "640 KiB", "17 B".
std::string format_bytes(Bytes bytes);

}  // namespace plimsoll::engine
