#include "formats/array_formats.h"

#include <algorithm>
#include <array>

namespace plimsoll::engine {

// Each format is defined in its own source file.
extern const ArrayFormat kNpyFormat, kNpzFormat, kSafetensorsFormat, kIdxFormat, kHdf5Format;

namespace {

// Help texts list the formats in this order, and the first bytes of a file are compared in this order.
constexpr std::array kFormats = {&kNpyFormat, &kNpzFormat, &kSafetensorsFormat, &kHdf5Format, &kIdxFormat};

bool has_ending(std::string_view path, std::string_view endings) {
  while (!endings.empty()) {
    const size_t end = std::min(endings.find(' '), endings.size());
    if (path.ends_with(endings.substr(0, end))) return true;
    endings.remove_prefix(std::min(end + 1, endings.size()));
  }
  return false;
}

template <typename Words>
std::string list(std::string_view last, Words words) {
  std::string text;
  for (size_t i = 0; i < kFormats.size(); ++i) {
    if (i > 0) text += ", ";
    if (i > 0 && i + 1 == kFormats.size()) text += last;
    text += words(*kFormats[i]);
  }
  return text;
}

}  // namespace

std::span<const ArrayFormat* const> array_formats() {
  return kFormats;
}

const ArrayFormat* array_format_of_name(std::string_view path) {
  for (const ArrayFormat* format : kFormats)
    if (has_ending(path, format->endings)) return format;
  return nullptr;
}

const ArrayFormat* array_format_of_start(std::string_view start) {
  for (const ArrayFormat* format : kFormats)
    if (format->begins(start)) return format;
  return nullptr;
}

std::string array_format_names() {
  return list("and ", [](const ArrayFormat& format) { return format.name; });
}

std::string array_format_help(bool with_targets) {
  return list("or ", [&](const ArrayFormat& format) { return with_targets ? format.help_pair : format.help_one; });
}

}  // namespace plimsoll::engine
