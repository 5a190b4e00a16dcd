// The array formats that --data accepts. Each format describes itself with one ArrayFormat in its own source, and the
// table in array_formats.cpp lists them all. Opening files, help texts and messages use only this table.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/file/array_source.h"

namespace plimsoll::engine {

// The number of bytes that `begins` gets from the start of a file. A shorter file is padded with zeros.
inline constexpr size_t kSniffedBytes = 16;

struct ArrayFormat {
  std::string_view name;     // the name in a list of formats: ".npz"
  std::string_view endings;  // endings of file names, separated by blanks: "-ubyte .idx"
  // Returns whether a file that starts with these kSniffedBytes has this format.
  bool (*begins)(std::string_view start);

  std::string_view help_pair;  // the --data argument for inputs and targets: "an IDX pair"
  std::string_view help_one;   // the --data argument for inputs alone: "an IDX file"

  // A format whose files hold one array sets `open`. A format whose files hold named arrays sets the other functions.
  Result<ArraySource> (*open)(const std::string& path) = nullptr;
  Result<std::vector<std::string>> (*names)(const std::string& path) = nullptr;
  Result<ArraySource> (*open_named)(const std::string& path, const std::string& name) = nullptr;
  // Returns whether `open_named` would have to decompress the array. Null: no array is compressed.
  bool (*packed)(const std::string& path, const std::string& name) = nullptr;
  std::string_view write_pair = {};   // Python code that writes inputs and targets in this format
  std::string_view write_named = {};  // Python code that writes arrays with given names

  bool has_names() const { return names != nullptr; }
};

std::span<const ArrayFormat* const> array_formats();

// Returns the format, or nullptr if none matches. The name of the file is tried first, so that a damaged file is
// reported as the format its name says. Otherwise the first bytes decide; `start` must hold kSniffedBytes.
const ArrayFormat* array_format_of_name(std::string_view path);
const ArrayFormat* array_format_of_start(std::string_view start);

std::string array_format_names();                  // ".npy, .npz, and IDX (plain or .gz)"
std::string array_format_help(bool with_targets);  // "x.npy, an .npz, or an IDX file"

}  // namespace plimsoll::engine
