#include "formats/file/scratch_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace plimsoll::engine {
namespace {

constexpr int64_t kPage = 4096;
// Bytes that are handed to the disk at once. With the ring, at most 32 MiB wait for it.
constexpr int64_t kPiece = 2 * kMiB;

bool is_in_memory(int fd) {
  struct statfs system {};
  constexpr decltype(system.f_type) kRam = 0x858458f6;  // RAMFS_MAGIC
  return ::fstatfs(fd, &system) == 0 && (system.f_type == TMPFS_MAGIC || system.f_type == kRam);
}

// A file that has no name from the beginning, or where the file system knows no such files, loses it at once.
Descriptor open_unnamed(const std::string& folder) {
  Descriptor fd(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600));
  if (fd.get() >= 0) return fd;
  std::string name = folder + "/plimsoll-XXXXXX";
  Descriptor named(::mkostemp(name.data(), O_CLOEXEC));
  if (named.get() >= 0) ::unlink(name.c_str());
  return named;
}

}  // namespace

Result<ScratchFile> ScratchFile::create(const std::string& folder) {
  Descriptor fd = open_unnamed(folder);
  if (fd.get() < 0)
    return fail(write_error(errno, folder + "/x", fmt::format("creating a temporary file in {}", folder)));
  if (is_in_memory(fd.get()))
    return fail(Error{ErrorCode::kNotWritable,
                      fmt::format("{} lies in memory, not on a disk", folder),
                      {"what is kept there would count as memory, but no budget would limit it"},
                      {}});
  // Records are read in any order, so reading further than asked would only fill the page cache.
  ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_RANDOM);
  return ScratchFile(std::move(fd), folder);
}

Bytes ScratchFile::room() const {
  constexpr uint64_t kMost = uint64_t{1} << 62;
  struct statvfs disk {};
  uint64_t room = kMost;
  if (::fstatvfs(fd_.get(), &disk) == 0 && disk.f_blocks > 0) room = uint64_t{disk.f_bavail} * disk.f_frsize;
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    room = std::min<uint64_t>(room, limit.rlim_cur);
  return static_cast<Bytes>(std::min(room, kMost));
}

Status ScratchFile::write(int64_t offset, std::span<const std::byte> data) {
  for (size_t done = 0; done < data.size();) {
    const ssize_t wrote =
        ::pwrite(fd_.get(), data.data() + done, data.size() - done, offset + static_cast<int64_t>(done));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0)
      return fail(write_error(wrote < 0 ? errno : ENOSPC, folder_ + "/x",
                              fmt::format("writing a temporary file in {}", folder_)));
    done += static_cast<size_t>(wrote);
  }
  if (!keeps_pages_) pass_on({offset, offset + static_cast<int64_t>(data.size())});
  return {};
}

Status ScratchFile::read(int64_t offset, std::span<std::byte> out) const {
  for (size_t done = 0; done < out.size();) {
    const ssize_t got = ::pread(fd_.get(), out.data() + done, out.size() - done, offset + static_cast<int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      return fail(ErrorCode::kFileUnreadable, fmt::format("reading a temporary file in {} failed: {}", folder_,
                                                          got < 0 ? std::strerror(errno) : "it ends too early"));
    done += static_cast<size_t>(got);
  }
  if (!keeps_pages_) drop({offset / kPage * kPage, offset + static_cast<int64_t>(out.size())});
  return {};
}

// The kernel drops whole pages only, and none that must still be written.
void ScratchFile::drop(const Piece& piece) const {
  const int64_t begin = piece.begin / kPage * kPage, end = (piece.end + kPage - 1) / kPage * kPage;
  ::posix_fadvise(fd_.get(), begin, end - begin, POSIX_FADV_DONTNEED);
}

// Starts to write a piece to the disk when it is large enough, and waits for the oldest one when the ring is full.
void ScratchFile::pass_on(const Piece& written) {
  Pieces& pieces = *pieces_;
  const std::lock_guard lock(pieces.mutex);
  const size_t size = pieces.ring.size();
  Piece* const last = pieces.count > 0 ? &pieces.ring[(pieces.first + pieces.count - 1) % size] : nullptr;
  if (last != nullptr && last->end == written.begin && last->end - last->begin < kPiece) {
    last->end = written.end;
    if (last->end - last->begin >= kPiece)
      ::sync_file_range(fd_.get(), last->begin, last->end - last->begin, SYNC_FILE_RANGE_WRITE);
    return;
  }
  if (pieces.count == size) {
    const Piece oldest = pieces.ring[pieces.first];
    pieces.first = (pieces.first + 1) % size;
    --pieces.count;
    ::sync_file_range(fd_.get(), oldest.begin, oldest.end - oldest.begin,
                      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    drop(oldest);
  }
  pieces.ring[(pieces.first + pieces.count++) % size] = written;
  if (written.end - written.begin >= kPiece)
    ::sync_file_range(fd_.get(), written.begin, written.end - written.begin, SYNC_FILE_RANGE_WRITE);
}

void ScratchFile::settle() {
  if (keeps_pages_) return;
  const std::lock_guard lock(pieces_->mutex);
  pieces_->count = 0;
  ::sync_file_range(fd_.get(), 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
  ::posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_DONTNEED);
}

}  // namespace plimsoll::engine
