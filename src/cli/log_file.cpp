#include "cli/log_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "formats/file/lock.h"

namespace plimsoll::engine {
namespace {

constexpr int64_t kMostText = 64 * kMiB;  // largest log that a resumed run continues

}  // namespace

Result<LogFile> LogFile::open(const std::string& path, const std::string& flag, bool append) {
  const std::string doing = fmt::format("opening {} {}", flag, path);
  // O_NONBLOCK makes opening a pipe without a reader fail at once. O_RDWR, if allowed, lets us read the old contents.
  int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0666);
  struct stat info {};
  if (fd >= 0 && ::fstat(fd, &info) == 0 && S_ISFIFO(info.st_mode)) {
    ::close(fd);
    fd = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENXIO)
      return fail(Error{ErrorCode::kNotWritable,
                        fmt::format("{} {} is a pipe that no program reads", flag, path),
                        {},
                        {"start the program that reads it first"}});
  }
  if (fd < 0 && errno == EACCES) fd = ::open(path.c_str(), O_WRONLY | O_APPEND | O_NONBLOCK | O_CLOEXEC);
  Descriptor file(fd);
  if (fd < 0) return fail(write_error(errno, path, doing));
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
    auto locked = lock_file(fd, fmt::format("{} {}", flag, path));
    if (!locked) return fail(std::move(locked.error().remedy(fmt::format("{} OTHER_FILE", flag))));
    if (!append && ::ftruncate(fd, 0) != 0) return fail(write_error(errno, path, doing));
  }
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  LogFile log;
  log.path_ = path;
  log.flag_ = flag;
  log.file_.reset(::fdopen(fd, "a"));
  if (!log.file_) return fail(write_error(errno, path, doing));
  file.release();
  return log;
}

Result<std::string> LogFile::contents() const {
  const int fd = ::fileno(file_.get());
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0) return std::string();
  if (info.st_size > kMostText)
    return fail(ErrorCode::kFileUnreadable, fmt::format("{} {} is too long to be continued", flag_, path_));
  std::string text(static_cast<size_t>(info.st_size), '\0');
  for (size_t done = 0; done < text.size();) {
    const ssize_t got = ::pread(fd, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return fail(ErrorCode::kFileUnreadable, fmt::format("{} {} cannot be read", flag_, path_));
    done += static_cast<size_t>(got);
  }
  return text;
}

Status LogFile::replace(const std::string& text) {
  if (::ftruncate(::fileno(file_.get()), 0) != 0)
    return fail(write_error(errno, path_, fmt::format("writing {} {}", flag_, path_)));
  write(text);
  return failed();
}

void LogFile::write(const std::string& text) {
  if (file_) wrote(std::fputs(text.c_str(), file_.get()) >= 0);
}

Status LogFile::failed() const {
  if (!failed_) return {};
  return fail(Error{ErrorCode::kWriteFailed,
                    fmt::format("{}: the log could not be written", path_),
                    {},
                    {fmt::format("free space on that disk, or write the log elsewhere with {}", flag_)}});
}

}  // namespace plimsoll::engine
