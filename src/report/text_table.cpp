#include "report/text_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace plimsoll::engine {

std::string shortened(const std::string& text, size_t width) {
  constexpr size_t kDots = 3;
  if (text.size() <= width || width <= kDots + 2) return text;
  const size_t tail = (width - kDots) * 2 / 3, head = width - kDots - tail;
  return text.substr(0, head) + "..." + text.substr(text.size() - tail);
}

std::string TextTable::text() const {
  std::vector<size_t> widths;
  for (const auto& cells : rows_)
    for (size_t i = 0; i < cells.size(); ++i) {
      if (widths.size() <= i) widths.push_back(0);
      widths[i] = std::max(widths[i], cells[i].size());
    }
  size_t total = 0;
  for (const size_t width : widths) total += width + 2;
  constexpr size_t kLeastFirst = 16;
  if (total > kTextWidth && widths[0] > kLeastFirst) widths[0] -= std::min(total - kTextWidth, widths[0] - kLeastFirst);
  std::string text;
  for (const auto& cells : rows_) {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i) {
      const bool left = i == 0 || (text_last_ && i + 1 == widths.size());
      const std::string cell = i == 0 ? shortened(cells[i], widths[0]) : cells[i];
      line += left ? fmt::format("  {:<{}}", cell, widths[i]) : fmt::format("  {:>{}}", cell, widths[i]);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

namespace {

std::string wrapped_words(const std::string& text, size_t width, const std::string& line_end, size_t indent) {
  std::string result, line;
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (line.find_first_not_of(' ') != std::string::npos && line.size() + 1 + word.size() > width) {
      result += line + line_end + "\n";
      line = std::string(indent, ' ') + word;
    } else {
      line += (at == 0 ? "" : " ") + word;
    }
    at = end + 1;
  }
  return result + line + "\n";
}

}  // namespace

std::string wrapped(const std::string& sentence, size_t indent) {
  const size_t margin = std::min(sentence.find_first_not_of(' '), sentence.size());
  return std::string(margin, ' ') + wrapped_words(sentence.substr(margin), kTextWidth - margin, "", indent);
}

std::string wrapped_command(const std::string& command) {
  // A flag and its value stay together: the space between them is not a place to break.
  std::string joined;
  for (size_t i = 0; i < command.size(); ++i) {
    const bool value_follows = command[i] == ' ' && command.compare(i + 1, 2, "--") != 0;
    joined += value_follows ? '\1' : command[i];
  }
  std::string text = "  " + wrapped_words(joined, kTextWidth - 4, " \\", 6);
  std::replace(text.begin(), text.end(), '\1', ' ');
  return text;
}

std::string with_commas(int64_t number) {
  std::string digits = fmt::format("{}", number);
  const int first = number < 0 ? 1 : 0;
  for (auto at = static_cast<int>(digits.size()) - 3; at > first; at -= 3) digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

std::string duration_text(double seconds) {
  if (seconds < 0.01) return fmt::format("{:.2f} ms", seconds * 1e3);
  if (seconds < 10) return fmt::format("{:.0f} ms", seconds * 1e3);
  if (seconds < 600) return fmt::format("{:.0f} s", seconds);
  if (seconds < 6 * 3600) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.0f} h", seconds / 3600);
}

}  // namespace plimsoll::engine
