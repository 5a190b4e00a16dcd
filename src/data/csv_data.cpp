#include "data/csv_data.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/csv_table.h"
#include "data/features.h"
#include "model/text/text_inputs.h"

namespace plimsoll::engine {
namespace {

std::vector<size_t> all_but_label(const CsvTable& table) {
  std::vector<size_t> columns;
  for (size_t i = 0; i < table.columns.size(); ++i)
    if (table.label != i && !table.texts.contains(i)) columns.push_back(i);
  return columns;
}

Error no_column(const std::string& path, const PortSpec& port, const CsvTable& table) {
  Error error{ErrorCode::kUsage, fmt::format("{}: no column for the model's input '{}'", path, port.name), {}, {}};
  error.fact(fmt::format("its columns: {}", fmt::join(table.columns, ", ")));
  return error.remedy(fmt::format("--features {}=COLUMN", port.name));
}

// Which columns each input reads. An input of numbers that no column is named after reads all that are left.
Result<std::vector<std::vector<size_t>>> columns_of(const std::string& path, const DataSpec& spec, CsvTable& table) {
  PLIMSOLL_ASSIGN(const auto named, parse_features(spec.read.features));
  std::vector<std::string> there = table.columns;
  if (table.label) there[*table.label].clear();
  std::vector<std::vector<size_t>> columns(spec.inputs.size());
  std::vector<bool> taken(table.columns.size(), false);
  if (table.label) taken[*table.label] = true;
  const auto left = [&] { return static_cast<size_t>(std::count(taken.begin(), taken.end(), false)); };
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    const PortSpec& port = spec.inputs[i];
    const bool single = spec.inputs.size() == 1;
    if (const auto choice =
            choose_feature(named, there, port.name, port.text ? PortRole::kText : PortRole::kInput, single))
      columns[i] = {static_cast<size_t>(std::find(there.begin(), there.end(), choice->feature) - there.begin())};
    else if (single && left() == 1)
      columns[i] = {static_cast<size_t>(std::find(taken.begin(), taken.end(), false) - taken.begin())};
    else if (port.text)
      return fail(no_column(path, port, table));
    for (const size_t column : columns[i]) taken[column] = true;
    if (port.text) table.texts.insert(columns[i].begin(), columns[i].end());
  }
  const auto open = std::count_if(columns.begin(), columns.end(), [](const auto& one) { return one.empty(); });
  for (size_t i = 0; i < columns.size(); ++i) {
    if (!columns[i].empty()) continue;
    if (open > 1) return fail(no_column(path, spec.inputs[i], table));
    for (size_t c = 0; c < taken.size(); ++c)
      if (!taken[c]) columns[i].push_back(c);
    if (columns[i].empty()) return fail(no_column(path, spec.inputs[i], table));
  }
  return columns;
}

bool reads_by_name(const DataSpec& spec) {
  return spec.inputs.size() > 1 ||
         std::any_of(spec.inputs.begin(), spec.inputs.end(), [](const PortSpec& port) { return port.text != nullptr; });
}

// Names that only a header has.
std::vector<std::string> names_in_header(const DataSpec& spec) {
  std::vector<std::string> names;
  if (!reads_by_name(spec)) return names;
  for (const PortSpec& port : spec.inputs) names.push_back(port.name);
  for (const PortSpec& port : spec.outputs) names.push_back(port.name);
  for (const char* usual : {"text", "review", "sentence", "label", "target", "class", "sentiment", "category"})
    names.emplace_back(usual);
  if (!spec.read.label_column.empty() && !csv_number(spec.read.label_column)) names.push_back(spec.read.label_column);
  if (const auto named = parse_features(spec.read.features))
    for (const NamedFeature& one : *named) names.push_back(one.feature);
  return names;
}

}  // namespace

bool is_csv(const std::string& path) {
  return path.ends_with(".csv") || path.ends_with(".tsv");
}

Result<FoundArrays> open_csv(const std::string& path, const DataSpec& spec) {
  if (spec.needs_targets && spec.outputs.size() != 1)
    return fail(Error{ErrorCode::kUsage,
                      fmt::format("--data {}: a CSV needs a model with one output", path),
                      {},
                      {"an .npz with arrays named after the inputs and outputs"}});
  PLIMSOLL_ASSIGN(const File file, File::open_read(path));
  PLIMSOLL_ASSIGN(CsvTable table, read_table(file, spec, names_in_header(spec)));
  std::vector<std::vector<size_t>> columns{all_but_label(table)};
  if (reads_by_name(spec)) {
    PLIMSOLL_ASSIGN(columns, columns_of(path, spec, table));
  }
  PLIMSOLL_TRY(count_rows(file, spec.read, table));
  if (table.rows == 0) return fail(ErrorCode::kDataEmpty, path + ": it holds no lines of data");
  note_table(path, table, spec.read);
  FoundArrays arrays;
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    PLIMSOLL_ASSIGN(auto x, spec.inputs[i].text ? csv_strings(file, table, spec.read, columns[i][0])
                                                : csv_numbers(file, table, spec.read, columns[i], false));
    arrays.inputs.push_back(std::move(x));
  }
  if (!spec.needs_targets) return arrays;
  PLIMSOLL_ASSIGN(auto y, csv_numbers(file, table, spec.read, {*table.label}, true));
  arrays.targets.push_back(std::move(y));
  return arrays;
}

}  // namespace plimsoll::engine
