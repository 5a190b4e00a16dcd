#include "data/string_array.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <vector>

#include "base/digest.h"
#include "base/utf8.h"

namespace plimsoll::engine {
namespace {

class StringArray final : public StringSource {
 public:
  StringArray(const ArraySource& array, std::shared_ptr<const File> file)
      : file_(std::move(file)),
        offset_(array.offset),
        size_(array.bytes()),
        width_(array.dims.back()),
        row_(array.row_bytes()),
        kind_(array.text),
        stored_(kind_ == TextKind::kUtf32 ? static_cast<size_t>(width_ / 4) : 0) {}

  Bytes bytes() const override { return static_cast<Bytes>(stored_.capacity() * sizeof(uint32_t)); }
  // In UTF-8, no character is longer than the four bytes that it has here.
  Bytes longest() const override { return width_; }

  Status read(size_t, int64_t record, int64_t number, std::string& into) override {
    const int64_t at = offset_ + record * row_ + number * width_;
    if (kind_ == TextKind::kBytes) {
      into.resize(static_cast<size_t>(width_));
      PLIMSOLL_TRY(file_->pread_exact(at, std::as_writable_bytes(std::span(into))));
      into.resize(into.find_last_not_of('\0') + 1);  // npos + 1 is 0
      return {};
    }
    const std::lock_guard lock(mutex_);
    PLIMSOLL_TRY(file_->pread_exact(at, std::as_writable_bytes(std::span(stored_))));
    size_t end = stored_.size();
    while (end > 0 && stored_[end - 1] == 0) --end;
    into.clear();
    for (size_t i = 0; i < end; ++i) append_utf8(stored_[i], into);
    return {};
  }

  // Of 64 pieces, as data/identity.h does for arrays of numbers.
  Result<std::string> digest(size_t) override {
    constexpr int64_t kPieces = 64;
    std::array<std::byte, 16 * kKiB> piece{};
    Digest digest;
    digest.add(bytes_of(size_));
    const int64_t step = std::max<int64_t>(size_ / kPieces, piece.size());
    for (int64_t at = 0; at < size_; at += step) {
      const auto part = std::span(piece).first(static_cast<size_t>(std::min<int64_t>(piece.size(), size_ - at)));
      PLIMSOLL_TRY(file_->pread_exact(offset_ + at, part));
      digest.add(part);
    }
    return digest.text();
  }

 private:
  const std::shared_ptr<const File> file_;
  const int64_t offset_, size_, width_, row_;
  const TextKind kind_;
  std::mutex mutex_;  // of stored_
  std::vector<uint32_t> stored_;
};

}  // namespace

std::shared_ptr<StringSource> string_array(const ArraySource& array, std::shared_ptr<const File> file) {
  return std::make_shared<StringArray>(array, std::move(file));
}

}  // namespace plimsoll::engine
