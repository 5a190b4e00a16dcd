#include "explain/lines.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace plimsoll::engine::explain {
namespace {

constexpr size_t kLeastWrapped = 60;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Returns the length of the escape code at the start of `text`.
size_t escape_length(std::string_view text) {
  if (text.size() < 2) return text.size();
  if (text[1] == '[') {
    size_t at = 2;
    while (at < text.size() && (text[at] < 0x40 || text[at] > 0x7e)) ++at;
    return std::min(at + 1, text.size());
  }
  if (text[1] == ']') {  // a title, up to BEL or ESC backslash
    for (size_t at = 2; at < text.size(); ++at) {
      if (text[at] == '\a') return at + 1;
      if (text[at] == '\x1b') return std::min(at + 2, text.size());
    }
    return text.size();
  }
  return 2;
}

// Appends the character of the HTML entity at the start of `text` and returns the entity's length; 0 if there is none.
size_t append_entity(std::string_view text, std::string& to) {
  const size_t end = text.substr(0, 10).find(';');
  if (end == std::string_view::npos || end < 3) return 0;
  const std::string_view name = text.substr(1, end - 1);
  constexpr std::array<std::pair<std::string_view, char>, 6> kNames = {
      {{"lt", '<'}, {"gt", '>'}, {"amp", '&'}, {"quot", '"'}, {"apos", '\''}, {"nbsp", ' '}}};
  for (const auto& [known, character] : kNames)
    if (name == known) {
      to += character;
      return end + 1;
    }
  if (name[0] != '#') return 0;
  const bool hexadecimal = name.size() > 2 && (name[1] == 'x' || name[1] == 'X');
  unsigned value = 0;
  for (const char c : name.substr(hexadecimal ? 2 : 1)) {
    if (hexadecimal ? std::isxdigit(static_cast<unsigned char>(c)) == 0 : !is_digit(c)) return 0;
    const unsigned digit = is_digit(c) ? unsigned(c - '0') : unsigned((c | 0x20) - 'a' + 10);
    value = value * (hexadecimal ? 16 : 10) + digit;
  }
  if (value < 0x20 || value > 0x7e) return 0;
  to += static_cast<char>(value);
  return end + 1;
}

void clean(std::string_view raw, std::string& to) {
  to.clear();
  for (size_t at = 0; at < raw.size();) {
    const char c = raw[at];
    if (c == '\x1b') {
      at += escape_length(raw.substr(at));
      continue;
    }
    if (c == '&') {
      if (const size_t length = append_entity(raw.substr(at), to); length > 0) {
        at += length;
        continue;
      }
    }
    if (c == '\b' && !to.empty())
      to.pop_back();  // a progress bar of Keras steps back
    else if (c == '\t' || c == '\v' || c == '\f')
      to += ' ';
    else if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f)
      to += c;
    ++at;
  }
}

std::string_view without_leading_blanks(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  return text;
}

}  // namespace

size_t columns_of(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

void LineCutter::feed(std::string_view bytes) {
  for (const char c : bytes) {
    if (c == '\n' || c == '\r') {
      if (!raw_.empty()) emit();
      if (c == '\n') ++number_;
      in_line_ = c == '\r';
    } else if (c != '\0') {
      in_line_ = true;
      raw_ += c;
      if (raw_.size() >= kMostLine) emit();
    }
  }
}

void LineCutter::finish() {
  if (!raw_.empty()) emit();
  if (in_line_) ++number_;
  in_line_ = false;
}

void LineCutter::emit() {
  clean(raw_, clean_);
  raw_.clear();
  LogLine line{number_, 0, clean_};
  line.stream = stream_of(line.text);
  // The rest of a wrapped line has no launcher's name: it belongs to the line before, which has the terminal's width.
  const bool rest = line.text.size() == clean_.size() && last_length_ >= kLeastWrapped && last_length_ == longest_;
  if (rest && line.stream == 0) line.stream = last_stream_;
  last_stream_ = line.stream;
  last_length_ = columns_of(clean_);
  longest_ = std::max(longest_, last_length_);
  sink_(line);
}

int LineCutter::known_stream(std::string_view name) {
  if (const auto found = streams_.find(name); found != streams_.end()) return found->second;
  if (streams_.size() + 1 >= kMostStreams) return 0;
  return streams_.emplace(std::string(name), static_cast<int>(streams_.size()) + 1).first->second;
}

// Removes what a launcher puts before a line, and returns the stream that it names.
int LineCutter::stream_of(std::string_view& text) {
  const std::string_view begin = text;
  const std::string_view trimmed = without_leading_blanks(text);
  if (trimmed.empty()) return 0;
  // torchrun: "[rank3]:", "[default3]:"; mpirun --tag-output: "[1,3]<stderr>:"
  if (trimmed[0] == '[') {
    const size_t close = trimmed.substr(0, 40).find(']');
    const std::string_view name = trimmed.substr(0, close == std::string_view::npos ? 0 : close);
    const bool torchrun = name.starts_with("[rank") || name.starts_with("[default");
    const bool mpi = close != std::string_view::npos && trimmed.substr(close).starts_with("]<std");
    const size_t colon = torchrun || mpi ? trimmed.substr(0, 56).find(':') : std::string_view::npos;
    if (colon != std::string_view::npos) {
      text = without_leading_blanks(trimmed.substr(colon + 1));
      return known_stream(name);
    }
  }
  // Ray: "(train_fn pid=123)", "(train_fn pid=123, ip=10.0.0.1)"
  if (trimmed[0] == '(') {
    const size_t close = trimmed.substr(0, 120).find(')');
    if (close != std::string_view::npos && trimmed.substr(0, close).find(" pid=") != std::string_view::npos) {
      text = without_leading_blanks(trimmed.substr(close + 1));
      return known_stream(trimmed.substr(0, close));
    }
  }
  // docker compose: "trainer-1  | "
  const size_t bar = begin.substr(0, 64).find("| ");
  if (bar != std::string_view::npos && bar > 1 && begin[bar - 1] == ' ') {
    const size_t end = begin.find(' ');
    const std::string_view name = begin.substr(0, end);
    const bool is_name = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
    });
    if (is_name && begin.substr(end, bar - end).find_first_not_of(' ') == std::string_view::npos) {
      text = without_leading_blanks(begin.substr(bar + 2));
      return known_stream(name);
    }
  }
  // srun --label: "3: ". The numbers of grep -n look the same, but none of them comes twice.
  const size_t digits = std::min(trimmed.find_first_not_of("0123456789"), trimmed.size());
  if (digits > 0 && digits < 5 && trimmed.substr(digits).starts_with(": ")) {
    const std::string_view name = trimmed.substr(0, digits);
    text = without_leading_blanks(trimmed.substr(digits + 2));
    auto found = seen_ranks_.find(name);
    if (found == seen_ranks_.end() && seen_ranks_.size() < kMostStreams)
      found = seen_ranks_.emplace(std::string(name), 0).first;
    if (found != seen_ranks_.end() && ++found->second > 1) return known_stream(name);
  }
  return 0;
}

}  // namespace plimsoll::engine::explain
