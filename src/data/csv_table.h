// A CSV as a table: which columns it has, how many rows, and its columns unpacked once into the cache. Private to
// data/.
#pragma once

#include <array>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "data/match.h"
#include "formats/csv/csv.h"

namespace plimsoll::engine {

// What a first pass over the file finds.
struct CsvTable {
  char delimiter = ',';
  bool header = false;
  std::vector<std::string> columns;  // names; "column 3" without a header
  std::optional<size_t> label;
  int64_t rows = 0;
  std::set<std::string> classes;  // of a label column with texts; else empty
  std::set<size_t> texts;         // columns of strings, in which no value is missing
  std::vector<Bytes> longest;     // of each column: its longest field

  size_t inputs() const { return columns.size() - (label ? 1 : 0); }
};

// Reads the first lines, and finds the label. `names`: a first line with one of them is a header.
Result<CsvTable> read_table(const File& file, const DataSpec& spec, const std::vector<std::string>& names);
// Counts the rows, and collects labels that are texts.
Status count_rows(const File& file, const ReadOptions& options, CsvTable& table);
void note_table(const std::string& path, const CsvTable& table, const ReadOptions& options);

// An array of float32 of these columns; of one dimension if `flat`, which needs one column.
Result<FoundArray> csv_numbers(const File& file, const CsvTable& table, const ReadOptions& options,
                               const std::vector<size_t>& columns, bool flat);
// An array of strings of one column.
Result<FoundArray> csv_strings(const File& file, const CsvTable& table, const ReadOptions& options, size_t column);

}  // namespace plimsoll::engine
