#include "data/csv_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/digest.h"
#include "data/features.h"
#include "formats/file/cache.h"
#include "formats/npy/npy.h"

namespace plimsoll::engine {
namespace {

constexpr size_t kMostClasses = 10'000;  // labels that are texts

Error bad_line(const File& file, const CsvReader& reader, ErrorCode code, const std::string& what) {
  return {
      code, fmt::format("{}: line {}, at byte {}: {}", file.path(), reader.line(), reader.position(), what), {}, {}};
}

Result<std::optional<size_t>> label_column(const std::string& path, const CsvTable& table, const DataSpec& spec) {
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

// Calls use(reader) for every line of data, and checks the number of fields.
template <typename Use>
Status for_lines(const File& file, const CsvTable& table, Use use) {
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

bool drops(const CsvTable& table, const CsvReader& reader, const ReadOptions& options) {
  if (options.missing != MissingValue::kDrop) return false;
  for (size_t i = 0; i < reader.size(); ++i)
    if (!table.texts.contains(i) && csv_is_missing(reader[i])) return true;
  return false;
}

Result<float> value_of(const File& file, const CsvTable& table, const CsvReader& reader, size_t column,
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

// Writes columns of numbers as .npy.
Status unpack(const File& file, const CsvTable& table, const ReadOptions& options, const std::vector<size_t>& columns,
              const std::vector<int64_t>& dims, const std::string& path) {
  PLIMSOLL_ASSIGN(auto writer, NpyWriter::create(path, DType::kFloat32, dims));
  std::vector<float> row;
  PLIMSOLL_TRY(for_lines(file, table, [&](const CsvReader& reader) -> Status {
    if (drops(table, reader, options)) return {};
    row.clear();
    for (const size_t column : columns) {
      PLIMSOLL_ASSIGN(const float value, value_of(file, table, reader, column, options));
      row.push_back(value);
    }
    return writer.write(std::as_bytes(std::span(row)));
  }));
  return writer.commit();
}

// The name of a column's part in the cache, beside what decides which lines are rows.
std::string part_of(const CsvTable& table, const ReadOptions& options, const std::string& what) {
  return fmt::format("csv {} {} {} {} {}", what, table.header, table.label ? static_cast<int64_t>(*table.label) : -1,
                     static_cast<int>(options.missing), fmt::join(table.texts, "-"));
}

// Strings one after the other in an .npy of bytes: where each ends, in 64 bits, and then the strings.
Status pack(const File& file, const CsvTable& table, const ReadOptions& options, size_t column,
            const std::string& path) {
  std::vector<uint64_t> ends;
  uint64_t bytes = 0;
  const auto for_texts = [&](auto use) {
    return for_lines(file, table, [&](const CsvReader& reader) -> Status {
      return drops(table, reader, options) ? Status() : use(reader[column]);
    });
  };
  PLIMSOLL_TRY(for_texts([&](std::string_view text) -> Status {
    bytes += text.size();
    return {};
  }));
  const int64_t size = table.rows * static_cast<int64_t>(sizeof(uint64_t)) + static_cast<int64_t>(bytes);
  PLIMSOLL_ASSIGN(auto writer, NpyWriter::create(path, DType::kUInt8, {size}));
  constexpr size_t kAtOnce = 8192;
  bytes = 0;
  const auto flush = [&]() -> Status {
    PLIMSOLL_TRY(writer.write(std::as_bytes(std::span(ends))));
    ends.clear();
    return {};
  };
  PLIMSOLL_TRY(for_texts([&](std::string_view text) -> Status {
    bytes += text.size();
    ends.push_back(bytes);
    return ends.size() < kAtOnce ? Status() : flush();
  }));
  PLIMSOLL_TRY(flush());
  PLIMSOLL_TRY(for_texts([&](std::string_view text) { return writer.write(bytes_of_text(text)); }));
  return writer.commit();
}

class PackedStrings final : public StringSource {
 public:
  PackedStrings(File file, int64_t offset, int64_t rows, Bytes longest)
      : file_(std::move(file)), offset_(offset), rows_(rows), longest_(longest) {}

  Bytes bytes() const override { return 0; }
  Bytes longest() const override { return longest_; }

  Status read(size_t, int64_t record, int64_t, std::string& into) override {
    std::array<uint64_t, 2> ends{};
    const int64_t word = sizeof(uint64_t);
    const bool first = record == 0;
    PLIMSOLL_TRY(file_.pread_exact(offset_ + (record - (first ? 0 : 1)) * word,
                                   std::as_writable_bytes(std::span(ends).subspan(first ? 1 : 0))));
    if (ends[1] < ends[0] || ends[1] - ends[0] > static_cast<uint64_t>(longest_) ||
        ends[1] > static_cast<uint64_t>(file_.size()))
      return fail(ErrorCode::kBadDataFile, file_.path() + ": this file of the cache is damaged");
    into.resize(static_cast<size_t>(ends[1] - ends[0]));
    return file_.pread_exact(offset_ + rows_ * word + static_cast<int64_t>(ends[0]),
                             std::as_writable_bytes(std::span(into)));
  }

  Result<std::string> digest(size_t) override {
    Digest digest;
    PLIMSOLL_TRY(file_.stream(offset_, file_.size() - offset_, [&](std::span<const std::byte> piece) -> Status {
      digest.add(piece);
      return {};
    }));
    return digest.text();
  }

 private:
  const File file_;
  const int64_t offset_, rows_;
  const Bytes longest_;
};

Result<FoundArray> cached_array(const File& file, const std::string& path) {
  PLIMSOLL_ASSIGN(File cached, File::open_read(path));
  PLIMSOLL_ASSIGN(const ArraySource source, read_npy(cached, 0, cached.size(), file.path()));
  FoundArray found;
  found.dtype = source.dtype;
  found.dims = source.dims;
  found.offset = source.offset;
  found.file = std::make_shared<const File>(std::move(cached));
  return found;
}

}  // namespace

// A first line with one of the names or with a text in it is a header, unless only the label is a text and the next
// line has one too.
Result<CsvTable> read_table(const File& file, const DataSpec& spec, const std::vector<std::string>& names) {
  CsvTable table;
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
  const bool named = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return std::find(first.begin(), first.end(), name) != first.end();
  });
  table.header = named || texts > texts_below;
  for (size_t i = 0; i < first.size(); ++i)
    table.columns.push_back(table.header ? first[i] : fmt::format("column {}", i));
  PLIMSOLL_ASSIGN(table.label, label_column(file.path(), table, spec));
  if (table.inputs() == 0) return fail(ErrorCode::kDataShape, file.path() + ": it has no column but the label");
  return table;
}

Status count_rows(const File& file, const ReadOptions& options, CsvTable& table) {
  table.longest.assign(table.columns.size(), 0);
  return for_lines(file, table, [&](const CsvReader& reader) -> Status {
    if (drops(table, reader, options)) return {};
    ++table.rows;
    for (const size_t column : table.texts)
      table.longest[column] = std::max(table.longest[column], static_cast<Bytes>(reader[column].size()));
    if (!table.label || !is_text(reader[*table.label])) return {};
    table.classes.emplace(reader[*table.label]);
    if (table.classes.size() > kMostClasses)
      return fail(bad_line(
          file, reader, ErrorCode::kBadDataFile,
          fmt::format("the label column '{}' has more than {} texts", table.columns[*table.label], kMostClasses)));
    return {};
  });
}

void note_table(const std::string& path, const CsvTable& table, const ReadOptions& options) {
  if (!options.note) return;
  options.note(fmt::format("{}: {} lines of {} columns{}", path, table.rows, table.columns.size(),
                           table.label ? fmt::format("; the label is '{}'", table.columns[*table.label]) : ""));
  if (!table.classes.empty())
    options.note(
        fmt::format("{}: the labels 0 to {} are {}", path, table.classes.size() - 1, fmt::join(table.classes, ", ")));
}

Result<FoundArray> csv_numbers(const File& file, const CsvTable& table, const ReadOptions& options,
                               const std::vector<size_t>& columns, bool flat) {
  std::vector<int64_t> dims{table.rows};
  if (!flat) dims.push_back(static_cast<int64_t>(columns.size()));
  Digest digest;
  digest.add(std::as_bytes(std::span(columns)));
  const std::string part = part_of(table, options, fmt::format("{} {}", flat ? "y" : "x", digest.text()));
  PLIMSOLL_ASSIGN(const std::string path, cached_file(file, part, [&](const std::string& target) {
                    return unpack(file, table, options, columns, dims, target);
                  }));
  PLIMSOLL_ASSIGN(FoundArray found, cached_array(file, path));
  found.label = flat ? fmt::format("{}: {}", file.path(), table.columns[columns[0]]) : file.path();
  return found;
}

Result<FoundArray> csv_strings(const File& file, const CsvTable& table, const ReadOptions& options, size_t column) {
  const std::string part = part_of(table, options, fmt::format("text {}", column));
  PLIMSOLL_ASSIGN(const std::string path, cached_file(file, part, [&](const std::string& target) {
                    return pack(file, table, options, column, target);
                  }));
  PLIMSOLL_ASSIGN(const FoundArray packed, cached_array(file, path));
  FoundArray found;
  found.label = fmt::format("{}: {}", file.path(), table.columns[column]);
  found.dims = {table.rows};
  PLIMSOLL_ASSIGN(File cached, File::open_read(path));
  found.strings = std::make_shared<PackedStrings>(std::move(cached), packed.offset, table.rows, table.longest[column]);
  return found;
}

}  // namespace plimsoll::engine
