// A file without a name that holds what can be made again: decoded pictures, shuffled records. The system removes it
// when the process ends, however that ends. Its pages do not stay in the page cache, unless the caller wants them
// there.
#pragma once

#include <array>
#include <memory>
#include <mutex>

#include "formats/file/file.h"

namespace plimsoll::engine {

class ScratchFile {
 public:
  // Fails with P601 or P602 if the folder cannot be written, or lies in memory instead of on a disk.
  static Result<ScratchFile> create(const std::string& folder);
  ScratchFile(ScratchFile&&) = default;

  const std::string& folder() const { return folder_; }
  // Bytes that the file system and the limit on the size of files leave for this file.
  Bytes room() const;
  // If true, pages stay in the page cache, where reading them again costs no disk access.
  void keep_pages(bool keep) { keeps_pages_ = keep; }

  // Several threads may write and read at once, but not the same bytes.
  Status write(int64_t offset, std::span<const std::byte> data);
  Status read(int64_t offset, std::span<std::byte> out) const;
  // Waits until all that was written is on the disk, and drops it from the page cache.
  void settle();

 private:
  ScratchFile(Descriptor fd, std::string folder) : fd_(std::move(fd)), folder_(std::move(folder)) {}

  // Written bytes that are on their way to the disk. Adjacent ones are joined.
  struct Piece {
    int64_t begin = 0, end = 0;
  };
  struct Pieces {
    std::mutex mutex;
    std::array<Piece, 16> ring;
    size_t first = 0, count = 0;
  };
  void pass_on(const Piece& written);
  void drop(const Piece& piece) const;

  Descriptor fd_;
  std::string folder_;
  bool keeps_pages_ = false;
  std::unique_ptr<Pieces> pieces_ = std::make_unique<Pieces>();
};

}  // namespace plimsoll::engine
