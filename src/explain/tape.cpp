#include "explain/tape.h"

#include <algorithm>
#include <cctype>

namespace plimsoll::engine::explain {
namespace {

constexpr size_t kKept = 8192;      // text behind the last position
constexpr int64_t kMostLines = 60;  // a reader waits for so many lines at most
constexpr size_t kMostColumn = 64, kLead = 24;
constexpr size_t kLeastWrapped = 40;  // columns; narrower logs are not taken as wrapped

}  // namespace

PhraseTable::PhraseTable(std::vector<Phrase> phrases) : phrases_(std::move(phrases)) {
  for (const Phrase& phrase : phrases_)
    for (const char c : phrase.words)
      if (c != ' ' && class_[static_cast<unsigned char>(c)] == 0)
        class_[static_cast<unsigned char>(c)] = static_cast<uint8_t>(classes_++);
  for (int c = 'A'; c <= 'Z'; ++c) class_[static_cast<size_t>(c)] = class_[static_cast<size_t>(c | 0x20)];
  const auto new_state = [&] {
    next_.resize(next_.size() + classes_, -1);
    found_.emplace_back();
    return static_cast<int>(found_.size()) - 1;
  };
  const auto edge = [&](int state, size_t c) -> int& { return next_[static_cast<size_t>(state) * classes_ + c]; };
  new_state();
  for (size_t i = 0; i < phrases_.size(); ++i) {
    int state = 0;
    size_t letters = 0;
    for (const char c : phrases_[i].words) {
      if (c == ' ') continue;
      ++letters;
      const size_t kind = class_[static_cast<unsigned char>(c)];
      if (edge(state, kind) < 0) {
        const int made = new_state();
        edge(state, kind) = made;
      }
      state = edge(state, kind);
    }
    found_[static_cast<size_t>(state)].push_back(static_cast<int>(i));
    letters_.push_back(letters);
  }
  std::vector<int> fallback(found_.size(), 0), order;
  for (size_t c = 0; c < classes_; ++c) {
    if (edge(0, c) > 0)
      order.push_back(edge(0, c));
    else
      edge(0, c) = 0;
  }
  for (size_t at = 0; at < order.size(); ++at) {
    const int state = order[at], back = fallback[static_cast<size_t>(state)];
    for (const int phrase : found_[static_cast<size_t>(back)]) found_[static_cast<size_t>(state)].push_back(phrase);
    for (size_t c = 0; c < classes_; ++c) {
      const int target = edge(state, c);
      if (target < 0) {
        edge(state, c) = edge(back, c);
      } else {
        fallback[static_cast<size_t>(target)] = edge(back, c);
        order.push_back(target);
      }
    }
  }
}

// Returns whether `text` continues a number that a terminal's edge cut off on the line before: that line has the width
// of the widest, it ends with a digit, and this one does not begin with a date or a time.
bool Tape::glued(std::string_view text) const {
  if (last_width_ < kLeastWrapped || last_width_ != widest_ || text_.empty() || text.empty()) return false;
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  const size_t last = text_.size() - 1;
  const bool open = digit(text_[last]) || (text_[last] == '.' && last > 0 && digit(text_[last - 1]));
  const bool goes_on = digit(text[0]) || (text[0] == '.' && text.size() > 1 && digit(text[1]) && digit(text_[last]));
  if (!open || !goes_on) return false;
  if (text[0] == '.') return true;
  const size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
  return end == text.size() || (text[end] != '-' && text[end] != ':' && text[end] != '/');
}

void Tape::add(const LogLine& line) {
  stream_ = line.stream;
  if (!glued(line.text)) append("\n");
  marks_.push_back({start_ + text_.size(), line.number, std::string(line.text.substr(0, Sighting::kMostText))});
  append(line.text);
  last_width_ = columns_of(line.text);
  widest_ = std::max(widest_, last_width_);
  for (Pending& pending : pending_) --pending.lines_left;
  settle(false);
  if (text_.size() > 2 * kKept) {
    uint64_t keep = start_ + text_.size() - kKept;
    for (const Pending& pending : pending_)
      keep = std::min(keep, pending.at - std::min(pending.at, uint64_t{Window::kBefore}));
    keep = std::max(keep, start_);
    text_.erase(0, static_cast<size_t>(keep - start_));
    start_ = keep;
    while (marks_.size() > 1 && marks_[1].at <= start_) marks_.pop_front();
  }
}

void Tape::append(std::string_view text) {
  for (const char c : text) {
    if (c == ' ' && (text_.empty() || text_.back() == ' ' || text_.back() == '\n')) continue;
    text_ += c;
    const auto byte = static_cast<unsigned char>(c);
    if (table_->ignores(byte)) continue;
    state_ = table_->step(state_, byte);
    for (const int phrase : table_->found(state_)) found(phrase);
  }
}

// The phrase ends at the last character. Its letters are counted back to where it begins.
void Tape::found(int phrase) {
  size_t left = table_->letters(phrase), at = text_.size();
  while (left > 0 && at > 0)
    if (!table_->ignores(static_cast<unsigned char>(text_[--at]))) --left;
  pending_.push_back({phrase, start_ + at, kMostLines});
}

void Tape::settle(bool all) {
  const uint64_t end = start_ + text_.size();
  size_t kept = 0;
  for (size_t i = 0; i < pending_.size(); ++i) {
    const Pending pending = pending_[i];
    // In their order, so that a reader knows what stands before.
    if (kept == 0 && (all || pending.lines_left <= 0 || end - pending.at >= table_->phrase(pending.phrase).need))
      read(pending);
    else
      pending_[kept++] = pending;
  }
  pending_.resize(kept);
}

void Tape::read(const Pending& pending) {
  const Phrase& phrase = table_->phrase(pending.phrase);
  const auto at = static_cast<size_t>(pending.at - start_);
  Window window;
  const auto behind = std::upper_bound(marks_.begin(), marks_.end(), pending.at,
                                       [](uint64_t position, const Mark& mark) { return position < mark.at; });
  if (behind != marks_.begin()) {
    const Mark& mark = *std::prev(behind);
    window.seen = {mark.line, stream_, mark.text};
    // A progress bar or a long path may stand before the phrase: the text that is shown begins near the phrase.
    if (const uint64_t column = pending.at - mark.at; column > kMostColumn) {
      const std::string_view rest = std::string_view(text_).substr(at - kLead);
      window.seen.text = "..." + std::string(rest.substr(0, std::min(rest.find('\n'), Sighting::kMostText)));
    }
  }
  const size_t before = std::min(at, Window::kBefore);
  window.before = std::string_view(text_).substr(at - before, before);
  window.after = std::string_view(text_).substr(at, phrase.need);
  phrase.read(*facts_, window);
}

void Tape::finish() {
  settle(true);
}

}  // namespace plimsoll::engine::explain
