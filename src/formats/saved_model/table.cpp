#include "formats/saved_model/table.h"

#include <fmt/format.h>

#include <optional>

#include "base/checked.h"
#include "formats/hdf5/reader.h"
#include "formats/limits.h"
#include "formats/saved_model/protobuf.h"

namespace plimsoll::engine {
namespace {

constexpr int64_t kFooterBytes = 48, kBlockTrailer = 5;  // a block's type and checksum
constexpr uint64_t kMagic = 0xdb4775248b80fb57;

struct Handle {
  uint64_t offset = 0, bytes = 0;
};

bool take_handle(std::span<const std::byte>& from, Handle& handle) {
  return take_varint(from, handle.offset) && take_varint(from, handle.bytes);
}

uint64_t little_endian(std::span<const std::byte> bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i) value |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  return value;
}

class Table {
 public:
  Table(const File& file, const std::string& label) : file_(file), label_(label) {}

  Status read(const TakeEntry& take) {
    if (file_.size() < kFooterBytes) return damaged("it is too short for an index");
    if (file_.size() > limits::kTableBytes)
      return damaged(fmt::format("it is larger than {}", format_bytes(limits::kTableBytes)));
    std::vector<std::byte> footer(static_cast<size_t>(kFooterBytes));
    PLIMSOLL_TRY(file_.pread_exact(file_.size() - kFooterBytes, footer));
    std::span<const std::byte> handles = footer;
    Handle meta, index;
    if (little_endian(handles.last(8)) != kMagic) return damaged("it does not end like a table of TensorFlow");
    if (!take_handle(handles, meta) || !take_handle(handles, index)) return damaged("its footer is damaged");
    return block(index, [&](std::string_view, std::span<const std::byte> value) -> Status {
      Handle data;
      if (!take_handle(value, data)) return damaged("its index is damaged");
      return block(data, take);
    });
  }

 private:
  tl::unexpected<Error> damaged(std::string_view what) const { return bad_weights(label_, what); }

  Status block(const Handle& handle, const TakeEntry& take) {
    const auto offset = static_cast<int64_t>(std::min<uint64_t>(handle.offset, INT64_MAX));
    const auto bytes = static_cast<int64_t>(std::min<uint64_t>(handle.bytes, INT64_MAX - kBlockTrailer));
    if (!lies_within(offset, bytes + kBlockTrailer, file_.size()))
      return damaged(fmt::format("a block of {} bytes at byte {} would lie outside its {} bytes", handle.bytes,
                                 handle.offset, file_.size()));
    read_bytes_ += bytes;  // a block that is listed several times cannot make us read without end
    if (read_bytes_ > 2 * file_.size()) return damaged("its blocks overlap");
    std::vector<std::byte> contents(static_cast<size_t>(bytes + kBlockTrailer));
    PLIMSOLL_TRY(file_.pread_exact(offset, contents));
    if (contents[static_cast<size_t>(bytes)] != std::byte{0}) return damaged("its blocks are compressed");
    return entries(std::span(contents).first(static_cast<size_t>(bytes)), take);
  }

  // Each key stores only what differs from the key before it. The restarts, offsets of whole keys, are for searching.
  Status entries(std::span<const std::byte> block, const TakeEntry& take) {
    if (block.size() < 4) return damaged("a block is too short");
    const uint64_t restarts = little_endian(block.last(4));
    if (restarts > (block.size() - 4) / 4) return damaged("a block is damaged");
    std::span<const std::byte> rest = block.first(block.size() - 4 - 4 * static_cast<size_t>(restarts));
    std::string key;
    while (!rest.empty()) {
      uint64_t shared = 0, own = 0, bytes = 0;
      const bool sizes = take_varint(rest, shared) && take_varint(rest, own) && take_varint(rest, bytes);
      if (!sizes || shared > key.size() || own > rest.size() || bytes > rest.size() - own)
        return damaged("an entry is longer than its block");
      if (shared + own > static_cast<uint64_t>(limits::kTableKeyBytes))
        return damaged(fmt::format("a name is longer than {} bytes", limits::kTableKeyBytes));
      if (++entries_ > limits::kTableEntries)
        return damaged(fmt::format("it has more than {} entries", limits::kTableEntries));
      key.resize(static_cast<size_t>(shared));
      key.append(reinterpret_cast<const char*>(rest.data()), static_cast<size_t>(own));
      PLIMSOLL_TRY(take(key, rest.subspan(static_cast<size_t>(own), static_cast<size_t>(bytes))));
      rest = rest.subspan(static_cast<size_t>(own + bytes));
    }
    return {};
  }

  const File& file_;
  const std::string& label_;
  int64_t read_bytes_ = 0, entries_ = 0;
};

}  // namespace

Status read_table(const File& file, const std::string& label, const TakeEntry& take) {
  return Table(file, label).read(take);
}

}  // namespace plimsoll::engine
