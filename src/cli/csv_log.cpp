#include "cli/csv_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "cli/metric_text.h"

namespace plimsoll::engine {
namespace {

// Returns the number as Python prints a float.
std::string number_text(double value) {
  if (std::isnan(value)) return "nan";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

// Quotes a field that contains a comma, a quote or a line break, as Python's csv module does.
std::string quoted(const std::string& name) {
  if (name.find_first_of(",\"\r\n") == std::string::npos) return name;
  std::string text = "\"";
  for (const char c : name) text += c == '"' ? std::string("\"\"") : std::string(1, c);
  return text + "\"";
}

// Returns the header and the lines of the epochs before `first_epoch`.
std::string lines_before(const std::string& text, int64_t first_epoch) {
  size_t end = 0;
  while (end < text.size()) {
    const size_t next = text.find('\n', end);
    if (next == std::string::npos) break;  // an incomplete line
    int64_t epoch = -1;
    const auto parsed = std::from_chars(text.data() + end, text.data() + next, epoch);
    if (parsed.ec == std::errc{} && epoch >= first_epoch) break;
    end = next + 1;
  }
  return text.substr(0, end);
}

}  // namespace

Result<CsvLog> CsvLog::open(const std::string& path, int64_t first_epoch, bool with_learning_rate) {
  CsvLog log;
  log.with_learning_rate_ = with_learning_rate;
  if (path.empty()) return log;
  PLIMSOLL_ASSIGN(log.file_, LogFile::open(path, "--csv-log", first_epoch > 0));
  if (first_epoch == 0) return log;
  PLIMSOLL_ASSIGN(const std::string text, log.file_.contents());
  const std::string kept = lines_before(text, first_epoch);
  if (kept.size() < text.size()) PLIMSOLL_TRY(log.file_.replace(kept));
  log.has_header_ = !kept.empty();
  return log;
}

// Without validation, CSVLogger still writes val_ columns, filled with "NA".
void CsvLog::epoch(const EpochEvent& event) {
  if (!file_) return;
  std::vector<Metric> columns = event.metrics;
  if (with_learning_rate_) columns.push_back({"learning_rate", event.learning_rate, {}});
  std::sort(columns.begin(), columns.end(), [](const Metric& a, const Metric& b) { return a.name < b.name; });
  const bool validates =
      std::any_of(columns.begin(), columns.end(), [](const Metric& metric) { return metric.name.starts_with("val_"); });
  std::string header = "epoch", line = fmt::format("{}", event.epoch);
  for (const Metric& metric : columns) {
    header += "," + quoted(metric.name);
    line += "," + quoted(value_text(metric, number_text));
  }
  for (size_t i = 0; i < columns.size() && !validates; ++i) {
    header += "," + quoted("val_" + columns[i].name);
    line += ",NA";
  }
  file_.write((has_header_ ? "" : header + "\r\n") + line + "\r\n");
  has_header_ = true;
}

Status CsvLog::failed() const {
  return file_.failed();
}

}  // namespace plimsoll::engine
