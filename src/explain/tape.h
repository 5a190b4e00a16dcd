// Finds known phrases in the lines of a log, also where a phrase is wrapped over several lines, and hands the text
// around each to its reader. Every character of the log is looked at once, whatever the number of phrases
// (Aho-Corasick).
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "explain/lines.h"

namespace plimsoll::engine::explain {

struct Facts;

// A line of the log, as evidence.
struct Sighting {
  int64_t line = 0;
  int stream = 0;
  std::string text;  // cut to kMostText
  static constexpr size_t kMostText = 240;
};

// A phrase that was found, with the text around it. Line breaks are '\n', all other blanks are one ' '.
struct Window {
  Sighting seen;            // the line in which the phrase begins
  std::string_view before;  // up to kBefore characters before the phrase, which may lie on earlier lines
  std::string_view after;   // from the phrase's first character on
  static constexpr size_t kBefore = 320;
};

struct Phrase {
  std::string_view words;  // in lower case; blanks do not count
  size_t need;             // characters that its reader wants from the phrase on
  void (*read)(Facts& facts, const Window& window);
};

class PhraseTable {
 public:
  explicit PhraseTable(std::vector<Phrase> phrases);

  int step(int state, unsigned char c) const { return next_[static_cast<size_t>(state) * classes_ + class_[c]]; }
  bool ignores(unsigned char c) const { return c == ' ' || c == '\n'; }
  const std::vector<int>& found(int state) const { return found_[static_cast<size_t>(state)]; }
  const Phrase& phrase(int index) const { return phrases_[static_cast<size_t>(index)]; }
  size_t letters(int index) const { return letters_[static_cast<size_t>(index)]; }

 private:
  std::vector<Phrase> phrases_;
  std::vector<size_t> letters_;  // of each phrase, without blanks
  std::array<uint8_t, 256> class_{};
  size_t classes_ = 1;
  std::vector<int> next_;
  std::vector<std::vector<int>> found_;
};

// The recent text of one stream.
class Tape {
 public:
  Tape(const PhraseTable& table, Facts& facts) : table_(&table), facts_(&facts) {}
  void add(const LogLine& line);
  void finish();

 private:
  struct Mark {
    uint64_t at;
    int64_t line;
    std::string text;
  };
  struct Pending {
    int phrase;
    uint64_t at;
    int64_t lines_left;
  };
  bool glued(std::string_view text) const;
  void append(std::string_view text);
  void found(int phrase);
  void read(const Pending& pending);
  void settle(bool all);

  const PhraseTable* table_;
  Facts* facts_;
  std::string text_;
  uint64_t start_ = 0;  // position of text_[0]
  std::deque<Mark> marks_;
  std::vector<Pending> pending_;
  int state_ = 0;
  int stream_ = 0;
  size_t widest_ = 0, last_width_ = 0;
};

}  // namespace plimsoll::engine::explain
