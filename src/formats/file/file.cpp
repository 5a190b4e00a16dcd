#include "formats/file/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace plimsoll::engine {
namespace {

Error read_error(const std::string& path, int error_number) {
  Error error{ErrorCode::kFileUnreadable, fmt::format("cannot read {}: {}", path, std::strerror(error_number)), {}, {}};
  if (error_number == ENOENT) error.remedy("check the path; a relative path starts at the current folder");
  if (error_number == EACCES) error.remedy(fmt::format("chmod +r {}", path));
  return error;
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = other.release();
  }
  return *this;
}

int Descriptor::release() {
  return std::exchange(fd_, -1);
}

int Descriptor::close() {
  const int fd = release();
  if (fd < 0) return 0;
  // Linux frees the descriptor even if close() returns EINTR. A second close could close a file of another thread.
  return ::close(fd) == 0 || errno == EINTR ? 0 : -1;
}

Result<File> File::open_read(std::string path) {
  int fd = -1;
  do fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // O_NONBLOCK: opening a named pipe must not block
  while (fd < 0 && errno == EINTR);
  if (fd < 0) return fail(read_error(path, errno));
  return of(Descriptor(fd), std::move(path));
}

Result<File> File::of(Descriptor descriptor, std::string path) {
  File file;
  file.fd_ = std::move(descriptor);
  struct stat info {};
  if (::fstat(file.fd_.get(), &info) != 0) return fail(read_error(path, errno));
  if (!S_ISREG(info.st_mode))
    return fail(ErrorCode::kFileUnreadable, fmt::format("cannot read {}: it is {}, not a regular file", path,
                                                        S_ISDIR(info.st_mode) ? "a folder" : "a pipe or a device"));
  file.path_ = std::move(path);
  file.size_ = info.st_size;
  file.inode_ = info.st_ino;
  file.modified_ns_ = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
  return file;
}

Result<File> File::share() const {
  File other;
  other.fd_ = Descriptor(::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0));
  if (other.fd_.get() < 0) return fail(read_error(path_, errno));
  other.path_ = path_;
  other.size_ = size_;
  other.modified_ns_ = modified_ns_;
  other.inode_ = inode_;
  return other;
}

Status File::pread_exact(int64_t offset, std::span<std::byte> out) const {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t got = ::pread(fd_.get(), out.data() + done, out.size() - done, offset + static_cast<int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(read_error(path_, errno));
    if (got == 0)
      return fail(ErrorCode::kFileUnreadable,
                  fmt::format("{} ends at byte {}, but bytes {} to {} were to be read", path_,
                              offset + static_cast<int64_t>(done), offset, offset + static_cast<int64_t>(out.size())));
    done += static_cast<size_t>(got);
  }
  return {};
}

Status File::stream(int64_t offset, int64_t bytes, const Sink& sink) const {
  std::vector<std::byte> buffer(static_cast<size_t>(std::min<int64_t>(bytes, kStreamBuffer)));
  for (int64_t done = 0; done < bytes;) {
    const std::span piece(buffer.data(), static_cast<size_t>(std::min(bytes - done, kStreamBuffer)));
    PLIMSOLL_TRY(pread_exact(offset + done, piece));
    PLIMSOLL_TRY(sink(piece));
    done += static_cast<int64_t>(piece.size());
  }
  return {};
}

std::span<const std::byte> bytes_of_text(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(folder.c_str()), ::closedir);
  while (const dirent* entry = entries ? ::readdir(entries.get()) : nullptr) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  return names;
}

}  // namespace plimsoll::engine
