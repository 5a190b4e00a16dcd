// A text file that is written line by line and that no other run writes to meanwhile.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "base/error.h"

namespace plimsoll::engine {

class LogFile {
 public:
  // `flag` is named in errors. P214 if another run writes to it, P601/P602 if it cannot be written. Of a pipe nobody
  // reads it is an error too: the program would wait for ever.
  static Result<LogFile> open(const std::string& path, const std::string& flag, bool append);

  explicit operator bool() const { return file_ != nullptr; }
  std::FILE* get() const { return file_.get(); }
  Result<std::string> contents() const;     // of a file that was opened to append
  Status replace(const std::string& text);  // all of it
  void write(const std::string& text);
  void wrote(bool well) { failed_ = !well || std::fflush(file_.get()) != 0 || failed_; }
  Status failed() const;  // of any write so far

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_, flag_;
  std::unique_ptr<std::FILE, Close> file_;
  bool failed_ = false;
};

}  // namespace plimsoll::engine
