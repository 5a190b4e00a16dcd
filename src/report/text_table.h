// Tables of text, at most 80 columns wide.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace plimsoll::engine {

inline constexpr size_t kTextWidth = 80;

// Columns are as wide as their widest cell. The first column is left-aligned, and so is the last one if `text_last`;
// the others are right-aligned. If a line would be too wide, the first column's cells are shortened in the middle.
class TextTable {
 public:
  explicit TextTable(bool text_last = false) : text_last_(text_last) {}
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  std::string text() const;

 private:
  bool text_last_;
  std::vector<std::vector<std::string>> rows_;
};

// "backbone/...v_1_relu": the text in `width` columns, its middle replaced by dots if it is longer.
std::string shortened(const std::string& text, size_t width);

// Breaks a sentence into lines of at most 80 columns. Every line but the first begins with `indent` spaces.
std::string wrapped(const std::string& sentence, size_t indent = 0);

// Breaks a command into lines of at most 80 columns that a shell reads as one.
std::string wrapped_command(const std::string& command);

std::string with_commas(int64_t number);

// "0.53 ms", "221 ms", "3.4 s", "12 min".
std::string duration_text(double seconds);

}  // namespace plimsoll::engine
