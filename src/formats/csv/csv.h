// Comma-separated values (RFC 4180), read line by line: quoted fields with delimiters, line ends and doubled quotes in
// them, lines that end in \n or \r\n, a byte-order mark, blank lines.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/file/file.h"

namespace plimsoll::engine {

class CsvReader {
 public:
  CsvReader(const File& file, char delimiter);

  // Reads the next line that is not blank. Returns false at the end of the file. Fails with P401 if a quote is not
  // closed or the line exceeds limits.
  Result<bool> next();
  size_t size() const { return ends_.size(); }
  std::string_view operator[](size_t field) const;
  int64_t line() const { return line_; }  // number of the line read last, which begins at byte position()
  int64_t position() const { return begin_; }

 private:
  // Returns the next byte, or -1 at the end.
  int take();
  Status read_line();
  Error bad(std::string_view what) const;

  const File& file_;
  const char delimiter_;
  std::vector<std::byte> buffer_;
  size_t at_ = 0, there_ = 0;
  int64_t read_ = 0, begin_ = 0;
  int64_t line_ = 0, lines_ = 0;
  bool quoted_ = false;  // the line read last had a quoted field
  std::string text_;     // the fields of a line, one after the other
  std::vector<size_t> ends_;
  Status failed_;
};

// Returns the delimiter that the first line suggests: the most frequent one of comma, semicolon and tab.
Result<char> csv_delimiter(const File& file);

// Returns the number that a field holds, without the blanks around it.
std::optional<double> csv_number(std::string_view field);
bool csv_is_missing(std::string_view field);  // "", "NA", "NaN", "null", "?" and their like

}  // namespace plimsoll::engine
