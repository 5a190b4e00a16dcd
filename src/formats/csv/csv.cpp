#include "formats/csv/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "formats/limits.h"

namespace plimsoll::engine {

CsvReader::CsvReader(const File& file, char delimiter)
    : file_(file), delimiter_(delimiter), buffer_(static_cast<size_t>(kStreamBuffer)) {
  constexpr std::array<int, 3> kMark = {0xef, 0xbb, 0xbf};
  for (const int byte : kMark) {
    if (take() == byte) continue;
    at_ = 0;
    return;
  }
}

std::string_view CsvReader::operator[](size_t field) const {
  const size_t begin = field == 0 ? 0 : ends_[field - 1];
  return std::string_view(text_).substr(begin, ends_[field] - begin);
}

int CsvReader::take() {
  if (at_ == there_) {
    const auto count = static_cast<size_t>(std::min<int64_t>(kStreamBuffer, file_.size() - read_));
    if (count == 0 || !failed_) return -1;
    failed_ = file_.pread_exact(read_, std::span(buffer_).first(count));
    if (!failed_) return -1;
    read_ += static_cast<int64_t>(count);
    at_ = 0;
    there_ = count;
  }
  return std::to_integer<int>(buffer_[at_++]);
}

Error CsvReader::bad(std::string_view what) const {
  return {
      ErrorCode::kBadDataFile, fmt::format("{}: line {}, at byte {}: {}", file_.path(), line_, begin_, what), {}, {}};
}

Status CsvReader::read_line() {
  text_.clear();
  ends_.clear();
  quoted_ = false;
  begin_ = read_ - static_cast<int64_t>(there_ - at_);
  line_ = lines_ + 1;
  bool inside = false, after_quote = false, ends_with_return = false;
  for (;;) {
    const int byte = take();
    if (byte < 0 && inside) return fail(bad("a quote is not closed"));
    if (byte < 0) break;
    if (byte == '\n') ++lines_;
    if (inside || byte != '\n') ends_with_return = !inside && byte == '\r';
    if (inside) {
      inside = byte != '"';
      after_quote = !inside;
      if (inside) text_ += static_cast<char>(byte);
    } else if (byte == '"') {
      if (after_quote) text_ += '"';  // a doubled quote
      inside = quoted_ = true;
    } else if (byte == '\n') {
      break;
    } else if (byte == delimiter_) {
      ends_.push_back(text_.size());
    } else {
      text_ += static_cast<char>(byte);
    }
    if (byte != '"') after_quote = false;
    if (static_cast<Bytes>(text_.size()) > limits::kCsvLineBytes ||
        static_cast<int64_t>(ends_.size()) > limits::kCsvColumns)
      return fail(bad(
          fmt::format("it has more than {} or {} columns", format_bytes(limits::kCsvLineBytes), limits::kCsvColumns)));
  }
  // The \r of \r\n; never one of a quoted field, which is followed by a quote.
  if (ends_with_return) text_.pop_back();
  ends_.push_back(text_.size());
  return failed_;
}

Result<bool> CsvReader::next() {
  for (;;) {
    const bool at_end = at_ == there_ && read_ == file_.size();
    if (at_end) return false;
    PLIMSOLL_TRY(read_line());
    if (ends_.size() > 1 || !text_.empty() || quoted_) return true;
  }
}

Result<char> csv_delimiter(const File& file) {
  std::array<char, 4096> start{};
  const auto there = std::span(start).first(static_cast<size_t>(std::min<int64_t>(file.size(), start.size())));
  PLIMSOLL_TRY(file.pread_exact(0, std::as_writable_bytes(there)));
  const auto end = std::find(there.begin(), there.end(), '\n');
  char best = ',';
  for (const char one : {';', '\t'})
    if (std::count(there.begin(), end, one) > std::count(there.begin(), end, best)) best = one;
  return best;
}

namespace {

std::string_view without_blanks(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

}  // namespace

std::optional<double> csv_number(std::string_view field) {
  field = without_blanks(field);
  if (field.starts_with('+')) field.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (field.empty() || error != std::errc{} || end != field.data() + field.size()) return std::nullopt;
  return value;
}

bool csv_is_missing(std::string_view field) {
  constexpr std::array<std::string_view, 12> kMissing = {"",     "NA",   "N/A", "n/a", "NaN",  "nan",
                                                         "null", "NULL", "?",   "-",   "None", "#N/A"};
  return std::find(kMissing.begin(), kMissing.end(), without_blanks(field)) != kMissing.end();
}

}  // namespace plimsoll::engine
