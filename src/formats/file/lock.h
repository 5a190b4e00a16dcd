// Locks by which two processes notice that they would write to the same place. They end with the process, however it
// ends.
#pragma once

#include <string>

#include "formats/file/file.h"

namespace plimsoll::engine {

// Locks an open file for as long as it stays open; false where the file system has no locks. P214 if another process
// has it: `what` names the file, or what it stands for, in the message, and so does the process where the system tells.
Result<bool> lock_file(int fd, const std::string& what);

// A file that exists to be locked, and is removed with this object. One that a killed process left is harmless: its
// lock is gone.
class LockFile {
 public:
  static Result<LockFile> create(const std::string& path, const std::string& what);
  LockFile(LockFile&& other) noexcept = default;
  LockFile& operator=(LockFile&&) = delete;
  ~LockFile();

  bool locks() const { return locks_; }  // false where the file system has no locks

 private:
  LockFile(Descriptor fd, std::string path, bool locks) : fd_(std::move(fd)), path_(std::move(path)), locks_(locks) {}
  Descriptor fd_;
  std::string path_;
  bool locks_;
};

}  // namespace plimsoll::engine
