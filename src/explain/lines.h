// Cuts a log of any size into clean lines. It keeps one line in memory, never the log.
//
// Logs pass through terminals, notebooks, web pages and launchers before somebody asks about them. So escape codes,
// HTML entities, NUL bytes (UTF-16) and the name that a launcher puts before each line are removed. A carriage return
// ends a line as a progress bar does: what follows has the same number.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace plimsoll::engine::explain {

struct LogLine {
  int64_t number = 0;     // from 1
  int stream = 0;         // lines of one rank or container belong together; 0: the line names none
  std::string_view text;  // clean, and valid until the next line
};

size_t columns_of(std::string_view text);  // in characters of UTF-8: the blocks of a progress bar take three bytes each

class LineCutter {
 public:
  static constexpr size_t kMostLine = 16384;  // longer lines come in pieces of this size
  static constexpr size_t kMostStreams = 256;

  using Sink = std::function<void(const LogLine&)>;
  explicit LineCutter(Sink sink) : sink_(std::move(sink)) {}

  void feed(std::string_view bytes);
  void finish();  // the last line may have no line break
  int64_t lines() const { return number_ - 1; }

 private:
  void emit();
  int stream_of(std::string_view& text);
  int known_stream(std::string_view name);

  Sink sink_;
  std::string raw_, clean_;
  int64_t number_ = 1;
  int last_stream_ = 0;
  size_t last_length_ = 0, longest_ = 0;
  bool in_line_ = false;  // the current line has had bytes
  std::map<std::string, int, std::less<>> streams_;
  std::map<std::string, int, std::less<>> seen_ranks_;
};

}  // namespace plimsoll::engine::explain
