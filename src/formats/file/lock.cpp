#include "formats/file/lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>

namespace plimsoll::engine {
namespace {

// Returns the process that holds the lock, from /proc/locks; 0 if it is not listed (another machine or namespace).
long holder_of(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return 0;
  std::ifstream table("/proc/locks");
  for (std::string line; std::getline(table, line);) {
    long pid = 0;
    unsigned long inode = 0;
    if (std::sscanf(line.c_str(), "%*s FLOCK %*s %*s %ld %*x:%*x:%lu", &pid, &inode) == 2 && inode == info.st_ino)
      return pid > 0 ? pid : 0;
  }
  return 0;
}

// Returns whether `path` still names the open file. The previous holder of the lock may have removed it.
bool is_named(int fd, const std::string& path) {
  struct stat open {
  }, named{};
  return ::fstat(fd, &open) == 0 && ::stat(path.c_str(), &named) == 0 && open.st_ino == named.st_ino &&
         open.st_dev == named.st_dev;
}

}  // namespace

Result<bool> lock_file(int fd, const std::string& what) {
  int rc = 0;
  do rc = ::flock(fd, LOCK_EX | LOCK_NB);
  while (rc != 0 && errno == EINTR);
  if (rc == 0) return true;
  if (errno != EWOULDBLOCK) return false;
  const long pid = holder_of(fd);
  return fail(ErrorCode::kCheckpointInUse, fmt::format("{} is in use by another run{}", what,
                                                       pid > 0 ? fmt::format(", process {}", pid) : std::string()));
}

Result<LockFile> LockFile::create(const std::string& path, const std::string& what) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    Descriptor fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (fd.get() < 0) return fail(write_error(errno, path, fmt::format("creating {}", path)));
    PLIMSOLL_ASSIGN(const bool locks, lock_file(fd.get(), what));
    if (!locks || is_named(fd.get(), path)) return LockFile(std::move(fd), path, locks);
  }
  return fail(ErrorCode::kCheckpointInUse, fmt::format("{} is in use by other runs", what));
}

LockFile::~LockFile() {
  if (fd_.get() >= 0) ::unlink(path_.c_str());
}

}  // namespace plimsoll::engine
