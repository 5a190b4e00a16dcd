// A text file that is written line by line and locked against other runs.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "base/error.h"

namespace plimsoll::engine {

class LogFile {
 public:
  // `flag` is named in errors. Fails with P214 if another run writes to the file, and with P601 or P602 if it cannot be
  // written. A pipe without a reader is also an error: the program would wait for ever.
  static Result<LogFile> open(const std::string& path, const std::string& flag, bool append);

  explicit operator bool() const { return file_ != nullptr; }
  std::FILE* get() const { return file_.get(); }
  Result<std::string> contents() const;     // the old contents, if the file was opened to append
  Status replace(const std::string& text);  // replaces the whole contents
  void write(const std::string& text);
  void wrote(bool well) { failed_ = !well || std::fflush(file_.get()) != 0 || failed_; }
  Status failed() const;  // fails with P601 if any write so far failed

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_, flag_;
  std::unique_ptr<std::FILE, Close> file_;
  bool failed_ = false;
};

}  // namespace plimsoll::engine
