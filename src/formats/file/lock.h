// Locks that stop two processes from writing to the same place. A lock ends with its process, even if the process is
// killed.
#pragma once

#include <string>

#include "formats/file/file.h"

namespace plimsoll::engine {

// Locks an open file until it is closed. Returns false if the file system has no locks. Fails with P214 if another
// process holds the lock; the message contains `what`, and the other process if the system tells it.
Result<bool> lock_file(int fd, const std::string& what);

// A file that exists only to be locked. Destroying the object removes it. A lock file left by a killed process is
// harmless, because its lock is gone.
class LockFile {
 public:
  static Result<LockFile> create(const std::string& path, const std::string& what);
  LockFile(LockFile&& other) noexcept = default;
  LockFile& operator=(LockFile&&) = delete;
  ~LockFile();

  bool locks() const { return locks_; }  // false if the file system has no locks

 private:
  LockFile(Descriptor fd, std::string path, bool locks) : fd_(std::move(fd)), path_(std::move(path)), locks_(locks) {}
  Descriptor fd_;
  std::string path_;
  bool locks_;
};

}  // namespace plimsoll::engine
