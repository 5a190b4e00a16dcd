#include "base/suggest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <numeric>

namespace plimsoll::engine {
namespace {

constexpr size_t kMostNames = 3;
constexpr size_t kShortestPart = 2;      // a single letter occurs in nearly every name
constexpr size_t kLongestCompared = 64;  // longer texts are not names and are not compared

std::string plain(std::string_view name) {
  std::string text;
  for (const char c : name)
    if (c != '-' && c != '_' && c != '.' && c != ' ')
      text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// Returns the optimal string alignment distance: the number of insertions, deletions, replacements and swaps of
// neighbouring letters.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  std::iota(d[0].begin(), d[0].end(), 0);
  for (size_t i = 1; i <= a.size(); ++i)
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

template <typename Test>
std::vector<std::string> names_that(const std::vector<std::string>& known, Test test) {
  std::vector<std::string> found;
  for (const std::string& name : known)
    if (found.size() < kMostNames && test(plain(name))) found.push_back(name);
  return found;
}

}  // namespace

std::vector<std::string> nearest_names(std::string_view name, const std::vector<std::string>& known) {
  const std::string wanted = plain(name);
  if (wanted.empty() || wanted.size() > kLongestCompared) return {};
  if (auto equal = names_that(known, [&](const std::string& one) { return one == wanted; }); !equal.empty())
    return equal;
  if (wanted.size() >= kShortestPart) {
    if (auto begin = names_that(known, [&](const std::string& one) { return one.starts_with(wanted); }); !begin.empty())
      return begin;
    const auto contains = [&](const std::string& one) { return one.find(wanted) != std::string::npos; };
    if (auto parts = names_that(known, contains); !parts.empty()) return parts;
  }
  std::vector<std::string> best;
  size_t least = std::max<size_t>(1, (wanted.size() + 1) / 4) + 1;
  for (const std::string& candidate : known)
    if (const size_t letters = distance(wanted, plain(candidate)); letters < least) {
      least = letters;
      best = {candidate};
    }
  return best;
}

std::string suggestion(std::string_view name, const std::vector<std::string>& known) {
  return fmt::format("{}", fmt::join(nearest_names(name, known), " or "));
}

}  // namespace plimsoll::engine
