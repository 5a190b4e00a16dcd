#include "data/string_cells.h"

#include <algorithm>
#include <cstring>
#include <mutex>

namespace plimsoll::engine {
namespace {

constexpr Bytes kLength = sizeof(int64_t);

class StringCells final : public RowSource {
 public:
  StringCells(FoundArray strings, int64_t per_row) : strings_(std::move(strings)), per_row_(per_row) {
    text_.reserve(static_cast<size_t>(strings_.strings->longest()));
  }

  void set_width(Bytes width) { width_ = width; }

  Bytes bytes() const override { return static_cast<Bytes>(text_.capacity()) + strings_.strings->bytes(); }

  Status read(size_t, int64_t record, void* into) override {
    const std::lock_guard lock(mutex_);
    auto* at = static_cast<std::byte*>(into);
    for (int64_t i = 0; i < per_row_; ++i, at += kLength + width_) {
      PLIMSOLL_TRY(strings_.strings->read(strings_.field, record, i, text_));
      const auto length = static_cast<int64_t>(text_.size());
      if (length > width_) return fail(ErrorCode::kBadDataFile, strings_.label + ": it changed while it was read");
      std::memcpy(at, &length, sizeof length);
      std::memcpy(at + kLength, text_.data(), text_.size());
      std::memset(at + kLength + length, 0, static_cast<size_t>(width_ - length));
    }
    return {};
  }

  Result<Bytes> longest() {
    Bytes longest = 1;
    for (int64_t record = 0; record < strings_.dims[0]; ++record)
      for (int64_t i = 0; i < per_row_; ++i) {
        PLIMSOLL_TRY(strings_.strings->read(strings_.field, record, i, text_));
        longest = std::max(longest, static_cast<Bytes>(text_.size()));
      }
    return longest;
  }

  Result<std::string> digest(size_t) override { return strings_.strings->digest(strings_.field); }

 private:
  const FoundArray strings_;
  const int64_t per_row_;
  Bytes width_ = 0;
  std::mutex mutex_;
  std::string text_;
};

}  // namespace

Result<NamedColumn> column_of_cells(std::string name, FoundArray strings) {
  NamedColumn named;
  named.name = std::move(name);
  named.rows = strings.dims[0];
  named.text = true;
  named.column.label = strings.label;
  std::vector<int64_t> dims(strings.dims.begin() + 1, strings.dims.end());
  int64_t per_row = 1;
  for (const int64_t d : dims) per_row *= d;
  const auto cells = std::make_shared<StringCells>(std::move(strings), per_row);
  PLIMSOLL_ASSIGN(const Bytes width, cells->longest());
  cells->set_width(width);
  dims.push_back(kLength + width);
  PLIMSOLL_ASSIGN(Shape shape, checked_shape(std::move(dims), named.column.label));
  named.column.type = {DType::kUInt8, std::move(shape)};
  named.column.rows = cells;
  return named;
}

Status for_cells(const StreamedArray& array, std::span<const std::byte> rows,
                 const std::function<Status(std::string_view)>& use) {
  const auto cell = static_cast<size_t>(array.sample.back());
  for (size_t at = 0; at + cell <= rows.size(); at += cell) {
    int64_t length = 0;
    std::memcpy(&length, rows.data() + at, sizeof length);
    PLIMSOLL_TRY(use({reinterpret_cast<const char*>(rows.data() + at + kLength), static_cast<size_t>(length)}));
  }
  return {};
}

}  // namespace plimsoll::engine
