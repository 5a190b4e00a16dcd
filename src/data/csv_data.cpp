#include "data/csv_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "data/checks.h"
#include "data/features.h"
#include "formats/csv/csv.h"
#include "formats/file/cache.h"
#include "formats/npy/npy.h"

namespace plimsoll::engine {
namespace {

constexpr size_t kMostClasses = 10'000;  // labels that are texts

// What a first pass over the file finds.
struct Table {
  char delimiter = ',';
  bool header = false;
  std::vector<std::string> columns;  // names; "column 3" without a header
  std::optional<size_t> label;
  int64_t rows = 0;
  std::set<std::string> classes;  // of a label column with texts; else empty

  size_t inputs() const { return columns.size() - (label ? 1 : 0); }
};

Error bad_line(const File& file, const CsvReader& reader, ErrorCode code, const std::string& what) {
  return {
      code, fmt::format("{}: line {}, at byte {}: {}", file.path(), reader.line(), reader.position(), what), {}, {}};
}

Result<std::optional<size_t>> label_column(const std::string& path, const Table& table, const DataSpec& spec) {
  const std::string& wanted = spec.read.label_column;
  const auto& names = table.columns;
  if (!wanted.empty()) {
    const auto at = std::find(names.begin(), names.end(), wanted);
    if (at != names.end()) return static_cast<size_t>(at - names.begin());
    if (const auto number = csv_number(wanted);
        number && *number >= 0 && *number < static_cast<double>(names.size()) && *number == std::floor(*number))
      return static_cast<size_t>(*number);
    Error error{ErrorCode::kUsage, fmt::format("--label-column {}: {} has no such column", wanted, path), {}, {}};
    return fail(std::move(error.fact(fmt::format("its columns: {}", fmt::join(names, ", ")))));
  }
  const auto usual =
      choose_feature({}, names, spec.outputs.empty() ? "y" : spec.outputs[0].name, PortRole::kTarget, true);
  if (usual) return static_cast<size_t>(std::find(names.begin(), names.end(), usual->feature) - names.begin());
  if (!spec.needs_targets) return std::nullopt;
  return fail(Error{ErrorCode::kUsage,
                    fmt::format("--data {}: which column is the label is not known", path),
                    {fmt::format("its columns: {}", fmt::join(names, ", "))},
                    {fmt::format("--label-column {}", names.back())}});
}

bool is_text(std::string_view field) {
  return !csv_is_missing(field) && !csv_number(field);
}

// A first line with a text in it is a header, unless only the label is a text and the next line has one too.
Result<Table> read_columns(const File& file, const DataSpec& spec) {
  Table table;
  PLIMSOLL_ASSIGN(table.delimiter, csv_delimiter(file));
  CsvReader reader(file, table.delimiter);
  PLIMSOLL_ASSIGN(const bool any, reader.next());
  if (!any) return fail(ErrorCode::kDataEmpty, file.path() + ": it holds no lines");
  std::vector<std::string> first;
  for (size_t i = 0; i < reader.size(); ++i) first.emplace_back(reader[i]);
  size_t texts = 0, texts_below = 0;
  for (const auto& field : first) texts += is_text(field) ? 1 : 0;
  PLIMSOLL_ASSIGN(const bool second, reader.next());
  for (size_t i = 0; second && i < reader.size(); ++i) texts_below += is_text(reader[i]) ? 1 : 0;
  table.header = texts > texts_below;
  for (size_t i = 0; i < first.size(); ++i)
    table.columns.push_back(table.header ? first[i] : fmt::format("column {}", i));
  PLIMSOLL_ASSIGN(table.label, label_column(file.path(), table, spec));
  if (table.inputs() == 0) return fail(ErrorCode::kDataShape, file.path() + ": it has no column but the label");
  return table;
}

// Calls use(reader) for every line of data, and checks the number of fields.
template <typename Use>
Status for_lines(const File& file, const Table& table, Use use) {
  CsvReader reader(file, table.delimiter);
  for (bool skip = table.header;; skip = false) {
    PLIMSOLL_ASSIGN(const bool more, reader.next());
    if (!more) return {};
    if (skip) continue;
    if (reader.size() != table.columns.size())
      return fail(bad_line(file, reader, ErrorCode::kBadDataFile,
                           fmt::format("it has {} fields, expected {}", reader.size(), table.columns.size())));
    PLIMSOLL_TRY(use(reader));
  }
}

bool drops(const CsvReader& reader, const ReadOptions& options) {
  if (options.missing != MissingValue::kDrop) return false;
  for (size_t i = 0; i < reader.size(); ++i)
    if (csv_is_missing(reader[i])) return true;
  return false;
}

// Counts the rows, and collects labels that are texts.
Status count_rows(const File& file, const ReadOptions& options, Table& table) {
  return for_lines(file, table, [&](const CsvReader& reader) -> Status {
    if (drops(reader, options)) return {};
    ++table.rows;
    if (!table.label || !is_text(reader[*table.label])) return {};
    table.classes.emplace(reader[*table.label]);
    if (table.classes.size() > kMostClasses)
      return fail(bad_line(
          file, reader, ErrorCode::kBadDataFile,
          fmt::format("the label column '{}' has more than {} texts", table.columns[*table.label], kMostClasses)));
    return {};
  });
}

Result<float> value_of(const File& file, const Table& table, const CsvReader& reader, size_t column,
                       const ReadOptions& options) {
  const std::string_view field = reader[column];
  const bool label = table.label == column;
  if (label && !table.classes.empty()) {
    const auto at = table.classes.find(std::string(field));
    if (at != table.classes.end()) return static_cast<float>(std::distance(table.classes.begin(), at));
    return fail(bad_line(file, reader, ErrorCode::kBadDataFile,
                         fmt::format("the label '{}' is a number, but others are texts", field)));
  }
  if (const auto number = csv_number(field); number && std::isfinite(*number)) return static_cast<float>(*number);
  const std::string where = fmt::format("the column '{}'", table.columns[column]);
  if (!csv_is_missing(field))
    return fail(bad_line(file, reader, ErrorCode::kBadDataFile,
                         fmt::format("{} holds '{}', which is no number", where, field)));
  if (options.missing == MissingValue::kZero && !label) return 0.0F;
  Error error = bad_line(file, reader, ErrorCode::kDataNotFinite, where + " has no value");
  return fail(error.remedy("--missing drop   leaves out such lines").remedy("--missing zero"));
}

// Writes the label, or all other columns, as .npy.
Status unpack(const File& file, const Table& table, const ReadOptions& options, bool labels, const std::string& path) {
  std::vector<int64_t> dims{table.rows};
  if (!labels) dims.push_back(static_cast<int64_t>(table.inputs()));
  PLIMSOLL_ASSIGN(auto writer, NpyWriter::create(path, DType::kFloat32, dims));
  std::vector<float> row;
  PLIMSOLL_TRY(for_lines(file, table, [&](const CsvReader& reader) -> Status {
    if (drops(reader, options)) return {};
    row.clear();
    for (size_t i = 0; i < reader.size(); ++i) {
      if ((table.label == i) != labels) continue;
      PLIMSOLL_ASSIGN(const float value, value_of(file, table, reader, i, options));
      row.push_back(value);
    }
    return writer.write(std::as_bytes(std::span(row)));
  }));
  return writer.commit();
}

Result<FoundArray> unpacked(const File& file, const Table& table, const ReadOptions& options, bool labels) {
  const std::string part =
      fmt::format("csv {} {} {} {}", labels ? "y" : "x", table.header,
                  table.label ? static_cast<int64_t>(*table.label) : -1, static_cast<int>(options.missing));
  PLIMSOLL_ASSIGN(const std::string path, cached_file(file, part, [&](const std::string& target) {
                    return unpack(file, table, options, labels, target);
                  }));
  PLIMSOLL_ASSIGN(File cached, File::open_read(path));
  PLIMSOLL_ASSIGN(const ArraySource source, read_npy(cached, 0, cached.size(), file.path()));
  FoundArray found;
  found.label = labels ? fmt::format("{}: {}", file.path(), table.columns[*table.label]) : file.path();
  found.dtype = source.dtype;
  found.dims = source.dims;
  found.offset = source.offset;
  found.file = std::make_shared<const File>(std::move(cached));
  return found;
}

}  // namespace

bool is_csv(const std::string& path) {
  return path.ends_with(".csv") || path.ends_with(".tsv");
}

Result<FoundArrays> open_csv(const std::string& path, const DataSpec& spec) {
  if (spec.inputs.size() != 1 || (spec.needs_targets && spec.outputs.size() != 1))
    return fail(Error{ErrorCode::kUsage,
                      fmt::format("--data {}: a CSV needs a model with one input and one output", path),
                      {},
                      {"an .npz with arrays named after the inputs and outputs"}});
  PLIMSOLL_ASSIGN(const File file, File::open_read(path));
  PLIMSOLL_ASSIGN(Table table, read_columns(file, spec));
  PLIMSOLL_TRY(count_rows(file, spec.read, table));
  if (table.rows == 0) return fail(ErrorCode::kDataEmpty, path + ": it holds no lines of data");
  if (spec.read.note) {
    spec.read.note(fmt::format("{}: {} lines of {} columns{}", path, table.rows, table.columns.size(),
                               table.label ? fmt::format("; the label is '{}'", table.columns[*table.label]) : ""));
    if (!table.classes.empty())
      spec.read.note(
          fmt::format("{}: the labels 0 to {} are {}", path, table.classes.size() - 1, fmt::join(table.classes, ", ")));
  }
  FoundArrays arrays;
  PLIMSOLL_ASSIGN(auto x, unpacked(file, table, spec.read, false));
  arrays.inputs.push_back(std::move(x));
  if (!spec.needs_targets) return arrays;
  PLIMSOLL_ASSIGN(auto y, unpacked(file, table, spec.read, true));
  arrays.targets.push_back(std::move(y));
  return arrays;
}

}  // namespace plimsoll::engine
