#include "explain/cursor.h"

#include <charconv>
#include <cmath>

#include "base/checked.h"

namespace plimsoll::engine::explain {
namespace {

constexpr int64_t kMostNumber = 4'000'000'000'000'000'000;  // the sum of two is an int64_t

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
}

bool is_blank(char c) {
  return c == ' ' || c == '\n';
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

}  // namespace

void Cursor::skip_blanks() {
  while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
}

// Returns the position behind `words` if they stand at `from`.
std::optional<size_t> Cursor::match(size_t from, std::string_view words) const {
  size_t at = from;
  for (const char wanted : words) {
    if (wanted == ' ') continue;
    while (at < text_.size() && is_blank(text_[at])) ++at;
    if (at >= text_.size() || lower(text_[at]) != wanted) return std::nullopt;
    ++at;
  }
  return at;
}

bool Cursor::eat(std::string_view words) {
  const auto end = match(at_, words);
  if (end) at_ = *end;
  return end.has_value();
}

bool Cursor::find(std::string_view words, size_t within) {
  const size_t last = within > text_.size() - at_ ? text_.size() : at_ + within;
  for (size_t from = at_; from < last; ++from) {
    if (lower(text_[from]) != words[0]) continue;
    if (const auto end = match(from, words)) {
      at_ = *end;
      return true;
    }
  }
  return false;
}

std::optional<int64_t> Cursor::whole() {
  skip_blanks();
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
  if (error != std::errc{} || value < 0 || value > kMostNumber) return std::nullopt;
  at_ = static_cast<size_t>(end - text_.data());
  return value;
}

std::optional<Bytes> Cursor::size() {
  skip_blanks();
  if (at_ >= text_.size() || !is_digit(text_[at_])) return std::nullopt;
  double value = 0;
  const auto [end, error] =
      std::from_chars(text_.data() + at_, text_.data() + text_.size(), value, std::chars_format::fixed);
  if (error != std::errc{} || !std::isfinite(value)) return std::nullopt;
  const size_t before = static_cast<size_t>(end - text_.data());
  const std::string_view number = text_.substr(at_, before - at_);
  const bool is_whole = number.find('.') == std::string_view::npos;
  at_ = before;
  double unit = 1;
  constexpr std::string_view kPrefixes = "kmgtp";
  size_t letter = before;
  while (letter < text_.size() && is_blank(text_[letter])) ++letter;
  const size_t prefix = letter < text_.size() ? kPrefixes.find(lower(text_[letter])) : std::string_view::npos;
  if (prefix != std::string_view::npos) {
    // The unit must end where a word ends: "5 processes" is no number of petabytes.
    size_t after = letter + 1;
    if (after < text_.size() && lower(text_[after]) == 'i') ++after;
    if (after < text_.size() && lower(text_[after]) == 'b') ++after;
    const bool ends = after >= text_.size() || !((lower(text_[after]) >= 'a' && lower(text_[after]) <= 'z'));
    if (ends) {
      for (size_t i = 0; i <= prefix; ++i) unit *= 1024;
      at_ = after;
    }
  } else if (const auto bytes = match(before, "bytes")) {
    at_ = *bytes;
  }
  if (value * unit > static_cast<double>(kMostNumber)) return std::nullopt;
  if (is_whole && unit == 1) {
    Bytes exact = 0;
    const auto parsed = std::from_chars(number.data(), number.data() + number.size(), exact);
    return parsed.ec == std::errc{} && exact <= kMostNumber ? std::optional(exact) : std::nullopt;
  }
  return static_cast<Bytes>(std::llround(value * unit));
}

std::optional<std::vector<int64_t>> Cursor::dims() {
  skip_blanks();
  if (at_ >= text_.size() || (text_[at_] != '[' && text_[at_] != '(')) return std::nullopt;
  const char close = text_[at_] == '[' ? ']' : ')';
  ++at_;
  std::vector<int64_t> dims;
  int64_t product = 1;
  for (skip_blanks(); at_ < text_.size() && text_[at_] != close; skip_blanks()) {
    const auto dim = whole();
    if (!dim || dims.size() >= 16) return std::nullopt;
    const auto more = checked_multiply(product, *dim);
    if (!more) return std::nullopt;
    product = *more;
    dims.push_back(*dim);
    skip_blanks();
    if (at_ < text_.size() && text_[at_] == ',') ++at_;
  }
  if (at_ >= text_.size()) return std::nullopt;
  ++at_;
  return dims;
}

std::string Cursor::word(std::string_view ends) {
  skip_blanks();
  const size_t from = at_;
  while (at_ < text_.size() && !is_blank(text_[at_]) && ends.find(text_[at_]) == std::string_view::npos) ++at_;
  return std::string(text_.substr(from, at_ - from));
}

int64_t elements_of(const std::vector<int64_t>& dims) {
  int64_t product = 1;
  for (const int64_t dim : dims) product *= dim;
  return product;
}

}  // namespace plimsoll::engine::explain
