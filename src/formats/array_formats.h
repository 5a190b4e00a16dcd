// The formats of arrays that --data accepts. Each format describes itself by one ArrayFormat in its own source; the
// table in array_formats.cpp lists them. Opening, help texts and messages read the table: nothing else knows which
// formats there are.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/file/array_source.h"

namespace plimsoll::engine {

// How many of the first bytes of a file `begins` sees; a shorter file is filled up with zeros.
inline constexpr size_t kSniffedBytes = 16;

struct ArrayFormat {
  std::string_view name;                   // in a list of formats: ".npz"
  std::string_view endings;                // of file names, separated by blanks: "-ubyte .idx"
  bool (*begins)(std::string_view start);  // whether these are the first kSniffedBytes of such a file

  std::string_view help_pair;  // what one gives as --data for inputs and targets: "an IDX pair"
  std::string_view help_one;   // for inputs alone: "an IDX file"

  // A file that is one array has `open`; a file of arrays with names has the others.
  Result<ArraySource> (*open)(const std::string& path) = nullptr;
  Result<std::vector<std::string>> (*names)(const std::string& path) = nullptr;
  Result<ArraySource> (*open_named)(const std::string& path, const std::string& name) = nullptr;
  // Whether `open_named` would have to unpack the array; without it no array is packed.
  bool (*packed)(const std::string& path, const std::string& name) = nullptr;
  std::string_view write_pair = {};   // Python that writes such a file: inputs and targets
  std::string_view write_named = {};  // and arrays under given names

  bool has_names() const { return names != nullptr; }
};

std::span<const ArrayFormat* const> array_formats();

// By the name of the file where it decides, so that a damaged file is reported as what it was meant to be; by its first
// bytes (of which `start` has kSniffedBytes) otherwise. nullptr if it is none of them.
const ArrayFormat* array_format_of_name(std::string_view path);
const ArrayFormat* array_format_of_start(std::string_view start);

std::string array_format_names();                  // ".npy, .npz, and IDX (plain or .gz)"
std::string array_format_help(bool with_targets);  // "x.npy, an .npz, or an IDX file"

}  // namespace plimsoll::engine
