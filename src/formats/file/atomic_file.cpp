#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "formats/file/file.h"

namespace plimsoll::engine {
namespace {

std::string folder_of(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// Writes everything at `offset`; continues after short writes and interruptions.
Status write_all(int fd, int64_t offset, std::span<const std::byte> data, const std::string& name) {
  for (size_t done = 0; done < data.size();) {
    const ssize_t wrote = ::pwrite(fd, data.data() + done, data.size() - done, offset + static_cast<int64_t>(done));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) {
      auto error = write_error(errno, name, fmt::format("writing {}", name));
      error.fact(fmt::format("{} were to be written at byte {}", format_bytes(static_cast<Bytes>(data.size() - done)),
                             offset + static_cast<int64_t>(done)));
      return fail(std::move(error));
    }
    done += static_cast<size_t>(wrote);
  }
  return {};
}

// Some file systems cannot sync folders and return EINVAL. That is not treated as an error.
int sync_descriptor(int fd) {
  return ::fsync(fd) == 0 || errno == EINVAL ? 0 : -1;
}

Status sync_folder_of(const std::string& path) {
  const Descriptor fd(::open(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0 || sync_descriptor(fd.get()) != 0)
    return fail(write_error(errno, path, fmt::format("flushing {} to the disk", path)));
  return {};
}

// Returns the file that `target` refers to. A symbolic link is followed, not replaced.
Result<std::string> real_target(const std::string& target) {
  struct stat info {};
  if (::stat(target.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    return fail(ErrorCode::kNotWritable, fmt::format("cannot write {}: it is {}, not a file", target,
                                                     S_ISDIR(info.st_mode) ? "a folder" : "a pipe or a device"));
  std::error_code ignored;
  if (!std::filesystem::is_symlink(target, ignored)) return target;
  auto resolved = std::filesystem::weakly_canonical(target, ignored);
  return ignored ? target : resolved.string();
}

// Names of the temporary files that exist now, in static memory that stays readable when the process is out of memory.
// If a path is too long or the table is full, the file is not listed here and only stack unwinding removes it.
struct Aside {
  std::atomic<bool> used{false};
  std::atomic<bool> whole{false};  // the path is complete; a signal handler may run while it is being written
  char path[1024];
};
std::array<Aside, 8> asides;

void remember(const std::string& path) {
  if (path.size() >= sizeof(Aside::path)) return;
  for (Aside& aside : asides) {
    if (aside.used.exchange(true)) continue;
    std::memcpy(aside.path, path.c_str(), path.size() + 1);
    aside.whole = true;
    return;
  }
}

void forget(const std::string& path) noexcept {
  for (Aside& aside : asides)
    if (aside.whole && path == aside.path) {
      aside.whole = false;
      aside.used = false;
    }
}

// Returns the process that wrote a file named TARGET.PID-N.part; 0 for other names.
pid_t writer_of(const std::string& target, const std::string& name) {
  pid_t pid = 0;
  unsigned number = 0;
  int end = 0;
  if (!name.starts_with(target)) return 0;
  const char* const rest = name.c_str() + target.size();
  const bool whole = std::sscanf(rest, ".%d-%u.part%n", &pid, &number, &end) == 2 && end > 0 && rest[end] == '\0';
  return whole ? pid : 0;
}

// Removes temporary files of processes that were killed while writing: the process does not exist on this machine, and
// the file is more than an hour old. The age matters because the writer may run on another machine that shares the
// folder.
void remove_leftovers(const std::string& target) {
  constexpr std::chrono::hours kAge{1};
  const std::string name = std::filesystem::path(target).filename().string();
  std::error_code ignored;
  std::vector<std::filesystem::path> leftovers;
  const std::filesystem::path folder = folder_of(target);
  for (const std::string& other : names_in(folder.string())) {
    const pid_t pid = writer_of(name, other);
    if (pid <= 0 || ::kill(pid, 0) == 0 || errno != ESRCH) continue;
    std::error_code unknown;
    const auto written = std::filesystem::last_write_time(folder / other, unknown);
    if (!unknown && written + kAge < std::filesystem::file_time_type::clock::now()) leftovers.push_back(folder / other);
  }
  for (const auto& path : leftovers) std::filesystem::remove(path, ignored);
}

}  // namespace

void remove_files_aside() noexcept {
  for (Aside& aside : asides)
    if (aside.whole) ::unlink(aside.path);
}

Error write_error(int error_number, const std::string& path, const std::string& doing) {
  const bool forbidden = error_number == EACCES || error_number == EPERM || error_number == EROFS ||
                         error_number == ENOENT || error_number == ENOTDIR || error_number == EISDIR ||
                         error_number == ELOOP || error_number == ENAMETOOLONG;
  Error error{forbidden ? ErrorCode::kNotWritable : ErrorCode::kWriteFailed,
              fmt::format("{} failed: {}", doing, std::strerror(error_number)),
              {},
              {}};
  const auto folder = folder_of(path);
  if (error_number == ENOSPC || error_number == EDQUOT)
    error.remedy(fmt::format("free space on the disk of {}, or choose another folder", folder));
  if (error_number == EFBIG) error.remedy("raise the limit on file sizes (ulimit -f)");
  if (error_number == ENOENT) error.remedy(fmt::format("mkdir -p {}", folder));
  if (error_number == EACCES || error_number == EPERM || error_number == EROFS)
    error.remedy(fmt::format("choose a folder you may write to; you may not write to {}", folder));
  return error;
}

Result<PathAside> PathAside::create(const std::string& target) {
  PathAside aside;
  PLIMSOLL_ASSIGN(aside.target_, real_target(target));
  remove_leftovers(aside.target_);
  static std::atomic<unsigned> counter = 0;
  for (int attempt = 0; attempt < 100; ++attempt) {
    auto candidate = fmt::format("{}.{}-{}.part", aside.target_, ::getpid(), counter++);
    aside.fd_ = Descriptor(::open(candidate.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (aside.descriptor() >= 0) {
      aside.temporary_ = std::move(candidate);
      remember(aside.temporary_);
      return aside;
    }
    if (errno != EEXIST && errno != EINTR) break;
  }
  return fail(write_error(errno, aside.target_, fmt::format("creating {}", target)));
}

PathAside::PathAside(PathAside&& other) noexcept
    : target_(std::move(other.target_)), temporary_(std::exchange(other.temporary_, {})), fd_(std::move(other.fd_)) {}

PathAside& PathAside::operator=(PathAside&& other) noexcept {
  if (this != &other) {
    discard();
    target_ = std::move(other.target_);
    temporary_ = std::exchange(other.temporary_, {});
    fd_ = std::move(other.fd_);
  }
  return *this;
}

Status PathAside::commit() {
  if (sync_descriptor(descriptor()) != 0 || fd_.close() != 0)
    return fail(write_error(errno, target_, fmt::format("flushing {} to the disk", target_)));
  if (::rename(temporary_.c_str(), target_.c_str()) != 0)
    return fail(write_error(errno, target_, fmt::format("moving {} into place", target_)));
  forget(temporary_);
  temporary_.clear();
  return sync_folder_of(target_);
}

void PathAside::discard() {
  if (!temporary_.empty()) {
    ::unlink(temporary_.c_str());
    forget(temporary_);
  }
  temporary_.clear();
  fd_.close();
}

Result<AtomicFile> AtomicFile::create(const std::string& target) {
  PLIMSOLL_ASSIGN(auto aside, PathAside::create(target));
  return AtomicFile(std::move(aside));
}

Status AtomicFile::reserve(int64_t bytes) {
  if (bytes <= 0) return {};
  PLIMSOLL_TRY(check_free_space(target(), bytes));
  int rc = 0;
  do rc = ::fallocate(aside_.descriptor(), FALLOC_FL_KEEP_SIZE, 0, bytes);
  while (rc != 0 && errno == EINTR);
  // Other errors mean that the file system cannot reserve space. If the disk is full, the write itself will fail.
  if (rc == 0 || (errno != ENOSPC && errno != EDQUOT)) return {};
  auto error = write_error(errno, target(), fmt::format("reserving space for {}", target()));
  return fail(std::move(error.fact(fmt::format("{} are needed ({} bytes)", format_bytes(bytes), bytes))));
}

Status AtomicFile::write(std::span<const std::byte> data) {
  PLIMSOLL_TRY(write_all(aside_.descriptor(), position_, data, target()));
  position_ += static_cast<int64_t>(data.size());
  return {};
}

Status AtomicFile::write_at(int64_t offset, std::span<const std::byte> data) {
  return write_all(aside_.descriptor(), offset, data, target());
}

Status AtomicFile::pad_to(int64_t offset) {
  static constexpr std::byte kZeros[4096] = {};
  while (position_ < offset) {
    const auto size = static_cast<size_t>(std::min<int64_t>(offset - position_, sizeof(kZeros)));
    PLIMSOLL_TRY(write(std::span(kZeros, size)));
  }
  return {};
}

Status AtomicFile::skip_to(int64_t offset) {
  struct stat info {};
  if (::fstat(aside_.descriptor(), &info) != 0 ||
      (info.st_size < offset && ::ftruncate(aside_.descriptor(), offset) != 0))
    return fail(write_error(errno, target(), fmt::format("writing {}", target())));
  position_ = offset;
  return {};
}

Status AtomicFile::read_at(int64_t offset, std::span<std::byte> out) const {
  for (size_t done = 0; done < out.size();) {
    const ssize_t got =
        ::pread(aside_.descriptor(), out.data() + done, out.size() - done, offset + static_cast<int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(write_error(errno, target(), fmt::format("reading {} back", target())));
    if (got == 0) {  // past the last byte written: reads as zeros, like a hole in a file
      std::fill(out.begin() + static_cast<std::ptrdiff_t>(done), out.end(), std::byte{0});
      return {};
    }
    done += static_cast<size_t>(got);
  }
  return {};
}

Status AtomicFile::commit() {
  return aside_.commit();
}

Status check_free_space(const std::string& path, int64_t bytes) {
  const auto refuse = [&](int error_number, uint64_t available) {
    auto error = write_error(error_number, path, fmt::format("writing {}", path));
    error.fact(fmt::format("{} are needed ({} bytes), {} can be written", format_bytes(bytes), bytes,
                           format_bytes(static_cast<Bytes>(std::min<uint64_t>(available, uint64_t{1} << 62)))));
    return fail(std::move(error));
  };
  struct statvfs disk {};
  if (::statvfs(folder_of(path).c_str(), &disk) == 0 && disk.f_blocks > 0) {
    const uint64_t available = uint64_t{disk.f_bavail} * disk.f_frsize;
    if (available < static_cast<uint64_t>(bytes)) return refuse(ENOSPC, available);
  }
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      limit.rlim_cur < static_cast<uint64_t>(bytes))
    return refuse(EFBIG, limit.rlim_cur);
  return {};
}

Result<TemporaryFile> TemporaryFile::create() {
  const char* chosen = std::getenv("TMPDIR");
  const std::string folder = chosen != nullptr && *chosen != '\0' ? chosen : "/var/tmp";
  for (const auto& place : {folder, std::string("/tmp")}) {
    std::string name = place + "/plimsoll-XXXXXX";
    Descriptor fd(::mkostemp(name.data(), O_CLOEXEC));
    if (fd.get() < 0) continue;
    ::unlink(name.c_str());
    return TemporaryFile(std::move(fd), std::move(name));
  }
  auto error = write_error(errno, folder + "/x", fmt::format("creating a temporary file in {}", folder));
  return fail(std::move(error.remedy("set TMPDIR to a folder on a disk with space")));
}

Status TemporaryFile::check_space(int64_t bytes) const {
  auto room = check_free_space(path_, bytes);
  if (!room) room.error().remedy("set TMPDIR to a folder on a disk with space");
  return room;
}

Result<File> TemporaryFile::open_read() && {
  return File::of(std::move(fd_), std::move(path_));
}

Status TemporaryFile::write(std::span<const std::byte> data) {
  PLIMSOLL_TRY(write_all(fd_.get(), position_, data, path_));
  position_ += static_cast<int64_t>(data.size());
  return {};
}

}  // namespace plimsoll::engine
