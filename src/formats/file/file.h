// Reading by position, and writing so that nothing half-written ever replaces something good.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace plimsoll::engine {

// What every streaming copy in formats/ holds at a time.
inline constexpr Bytes kStreamBuffer = 64 * kKiB;

// Receives a stream piece by piece.
using Sink = std::function<Status(std::span<const std::byte>)>;

// An open file descriptor; moves, never copies.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { close(); }

  int get() const { return fd_; }
  int release();
  int close();  // 0, or -1 with errno

 private:
  int fd_ = -1;
};

// A file open for reading. Safe to share between threads: reads carry their position.
class File {
 public:
  static Result<File> open_read(std::string path);
  // What is open already. `path` is what messages call it.
  static Result<File> of(Descriptor descriptor, std::string path);
  Result<File> share() const;  // the same open file once more, whatever became of its name

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }
  int64_t modified_ns() const { return modified_ns_; }
  uint64_t inode() const { return inode_; }

  // Fills all of `out`, or fails with P202: a file that ends before is an error.
  Status pread_exact(int64_t offset, std::span<std::byte> out) const;
  // Streams [offset, offset + bytes) through one buffer of kStreamBuffer bytes.
  Status stream(int64_t offset, int64_t bytes, const Sink& sink) const;

 private:
  Descriptor fd_;
  std::string path_;
  int64_t size_ = 0;
  int64_t modified_ns_ = 0;
  uint64_t inode_ = 0;
};

// A new, empty file beside `target` that becomes `target` on commit() and is removed otherwise. It is opened once, when
// it is made, so whoever may write in the folder cannot have another file written instead.
class PathAside {
 public:
  static Result<PathAside> create(const std::string& target);
  PathAside(PathAside&& other) noexcept;
  PathAside& operator=(PathAside&& other) noexcept;
  ~PathAside() { discard(); }

  const std::string& path() const { return temporary_; }
  const std::string& target() const { return target_; }
  int descriptor() const { return fd_.get(); }
  Status commit();  // fsync of the file, rename, fsync of its folder
  void discard();

 private:
  PathAside() = default;
  std::string target_, temporary_;
  Descriptor fd_;
};

// Removes every file that stands aside and was neither committed nor discarded: for whoever ends the program without
// unwinding. Allocates nothing.
void remove_files_aside() noexcept;

class AtomicFile {
 public:
  static Result<AtomicFile> create(const std::string& target);

  const std::string& target() const { return aside_.target(); }
  int64_t position() const { return position_; }

  // Asks for room for `bytes` now, so that a full disk is found before the first byte is written.
  Status reserve(int64_t bytes);
  Status write(std::span<const std::byte> data);                     // at position()
  Status write_at(int64_t offset, std::span<const std::byte> data);  // leaves position() alone
  Status pad_to(int64_t offset);                                     // zeros up to `offset`
  Status skip_to(int64_t offset);                                    // over what write_at() wrote
  Status read_at(int64_t offset, std::span<std::byte> out) const;
  Status commit();

 private:
  explicit AtomicFile(PathAside aside) : aside_(std::move(aside)) {}
  PathAside aside_;
  int64_t position_ = 0;
};

// P601 unless `bytes` more can be written in the folder of `path`, as far as the file system and RLIMIT_FSIZE say.
Status check_free_space(const std::string& path, int64_t bytes);

// A file in $TMPDIR or /var/tmp (/tmp is memory on many machines) without a name: it goes away when nobody has it open.
class TemporaryFile {
 public:
  static Result<TemporaryFile> create();

  Status check_space(int64_t bytes) const;  // P601 unless there is room for so many
  Status write(std::span<const std::byte> data);
  Result<File> open_read() &&;  // the same file, to be read

 private:
  TemporaryFile(Descriptor fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  Descriptor fd_;
  std::string path_;
  int64_t position_ = 0;
};

// The names in a folder, none where it cannot be listed. Not std::filesystem: libstdc++ 12 ends the program where
// memory runs out while it lists a folder.
std::vector<std::string> names_in(const std::string& folder);

// Shorthands over memory.
template <typename T>
std::span<const std::byte> bytes_of(const T& object) {
  return std::as_bytes(std::span<const T, 1>(&object, 1));
}
std::span<const std::byte> bytes_of_text(std::string_view text);

// P601 for a device that failed or is full, P602 for a place we may not write to; `doing` as in "writing m.keras".
Error write_error(int error_number, const std::string& path, const std::string& doing);

}  // namespace plimsoll::engine
