#include "data/array_stream.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/column_source.h"

namespace plimsoll::engine {

int64_t rows_at_once(Bytes row_bytes) {
  constexpr Bytes kBlock = 256 * kKiB;
  return std::max<int64_t>(1, kBlock / std::max<Bytes>(row_bytes, 1));
}

namespace {

class ColumnStream final : public ArrayStream {
 public:
  explicit ColumnStream(std::vector<NamedColumn> columns) : columns_(std::move(columns)) {
    for (const NamedColumn& one : columns_)
      arrays_.push_back({one.name, one.column.type.dtype, one.column.type.shape.dims, one.rows, one.text});
  }

  const std::vector<StreamedArray>& arrays() const override { return arrays_; }

  Bytes buffer_bytes(std::span<const size_t> which) const override {
    return row_bytes(which) * rows_at_once(row_bytes(which));
  }

  Status stream(std::span<const size_t> which, const RowSink& sink) override {
    const int64_t rows = arrays_[which[0]].rows,
                  at_once = std::min(rows_at_once(row_bytes(which)), std::max<int64_t>(rows, 1));
    std::vector<std::vector<std::byte>> buffers;
    for (const size_t i : which) buffers.emplace_back(static_cast<size_t>(at_once * arrays_[i].row_bytes()));
    std::vector<std::span<const std::byte>> block(which.size());
    for (int64_t first = 0; first < rows; first += at_once) {
      const int64_t count = std::min(at_once, rows - first);
      for (size_t k = 0; k < which.size(); ++k) {
        PLIMSOLL_TRY(columns_[which[k]].column.read(first, count, buffers[k].data()));
        block[k] = std::span(buffers[k]).first(static_cast<size_t>(count * arrays_[which[k]].row_bytes()));
      }
      PLIMSOLL_TRY(sink(first, count, block));
    }
    return {};
  }

 private:
  Bytes row_bytes(std::span<const size_t> which) const {
    Bytes bytes = 0;
    for (const size_t i : which) bytes += arrays_[i].row_bytes();
    return bytes;
  }

  std::vector<NamedColumn> columns_;
  std::vector<StreamedArray> arrays_;
};

Result<std::unique_ptr<ArrayStream>> as_stream(Result<std::vector<NamedColumn>> columns) {
  if (!columns) return tl::make_unexpected(std::move(columns.error()));
  return std::make_unique<ColumnStream>(std::move(*columns));
}

}  // namespace

Result<std::unique_ptr<ArrayStream>> open_pair(const std::string& argument, const ReadOptions& read) {
  PLIMSOLL_ASSIGN(auto columns, open_columns(argument, read, false));
  for (const NamedColumn& one : columns)
    if (one.text)
      return fail(ErrorCode::kDataShape,
                  fmt::format("{}: it holds strings, and numbers are reduced", one.column.label));
  return as_stream(std::move(columns));
}

Result<std::unique_ptr<ArrayStream>> open_all(const std::string& argument, const ReadOptions& read) {
  return as_stream(open_columns(argument, read, true));
}

}  // namespace plimsoll::engine
