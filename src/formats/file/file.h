// Reading files by position, and replacing files atomically, so that an incomplete file never replaces a complete one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace plimsoll::engine {

// The buffer size of every streaming copy in formats/.
inline constexpr Bytes kStreamBuffer = 64 * kKiB;

// Receives a stream in pieces.
using Sink = std::function<Status(std::span<const std::byte>)>;

// An open file descriptor. It can be moved but not copied.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { close(); }

  int get() const { return fd_; }
  int release();
  int close();  // returns 0, or -1 and sets errno

 private:
  int fd_ = -1;
};

// A file that is open for reading. Threads may share it, because every read gives its position.
class File {
 public:
  static Result<File> open_read(std::string path);
  // Takes a descriptor that is already open. `path` is its name in messages.
  static Result<File> of(Descriptor descriptor, std::string path);
  Result<File> share() const;  // opens the same file once more, even if it was renamed or removed

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }
  int64_t modified_ns() const { return modified_ns_; }
  uint64_t inode() const { return inode_; }

  // Fills all of `out`. Fails with P202 if the file ends before that.
  Status pread_exact(int64_t offset, std::span<std::byte> out) const;
  // Passes [offset, offset + bytes) to `sink` through one buffer of kStreamBuffer bytes.
  Status stream(int64_t offset, int64_t bytes, const Sink& sink) const;

 private:
  Descriptor fd_;
  std::string path_;
  int64_t size_ = 0;
  int64_t modified_ns_ = 0;
  uint64_t inode_ = 0;
};

// A new, empty file beside `target`. commit() renames it to `target`; without commit() it is removed. It is opened only
// once, on creation, so another user who may write to the folder cannot substitute another file.
class PathAside {
 public:
  static Result<PathAside> create(const std::string& target);
  PathAside(PathAside&& other) noexcept;
  PathAside& operator=(PathAside&& other) noexcept;
  ~PathAside() { discard(); }

  const std::string& path() const { return temporary_; }
  const std::string& target() const { return target_; }
  int descriptor() const { return fd_.get(); }
  Status commit();  // fsyncs the file, renames it, and fsyncs its folder
  void discard();

 private:
  PathAside() = default;
  std::string target_, temporary_;
  Descriptor fd_;
};

// Removes every temporary file that was neither committed nor discarded. For code that ends the program without stack
// unwinding. Allocates no memory.
void remove_files_aside() noexcept;

class AtomicFile {
 public:
  static Result<AtomicFile> create(const std::string& target);

  const std::string& target() const { return aside_.target(); }
  int64_t position() const { return position_; }

  // Reserves space for `bytes`, so that a full disk is found before the first byte is written.
  Status reserve(int64_t bytes);
  Status write(std::span<const std::byte> data);                     // at position()
  Status write_at(int64_t offset, std::span<const std::byte> data);  // does not change position()
  Status pad_to(int64_t offset);                                     // writes zeros up to `offset`
  Status skip_to(int64_t offset);                                    // skips bytes that write_at() wrote
  Status read_at(int64_t offset, std::span<std::byte> out) const;
  Status commit();

 private:
  explicit AtomicFile(PathAside aside) : aside_(std::move(aside)) {}
  PathAside aside_;
  int64_t position_ = 0;
};

// Fails with P601 unless the file system and RLIMIT_FSIZE allow `bytes` more bytes in the folder of `path`.
Status check_free_space(const std::string& path, int64_t bytes);

// A file without a name in $TMPDIR or /var/tmp (on many machines /tmp is memory). It is deleted when it is closed.
class TemporaryFile {
 public:
  static Result<TemporaryFile> create();

  Status check_space(int64_t bytes) const;  // fails with P601 unless there is room for `bytes`
  Status write(std::span<const std::byte> data);
  Result<File> open_read() &&;  // reopens the same file for reading

 private:
  TemporaryFile(Descriptor fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  Descriptor fd_;
  std::string path_;
  int64_t position_ = 0;
};

// Returns the names in a folder; none if it cannot be listed. Does not use std::filesystem, because libstdc++ 12 ends
// the program if memory runs out while it lists a folder.
std::vector<std::string> names_in(const std::string& folder);

// Views of objects as bytes.
template <typename T>
std::span<const std::byte> bytes_of(const T& object) {
  return std::as_bytes(std::span<const T, 1>(&object, 1));
}
std::span<const std::byte> bytes_of_text(std::string_view text);

// Returns P601 if the device failed or is full, P602 if the path is not writable. `doing` is text such as "writing
// m.keras".
Error write_error(int error_number, const std::string& path, const std::string& doing);

}  // namespace plimsoll::engine
