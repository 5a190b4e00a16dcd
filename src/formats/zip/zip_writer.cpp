#include "formats/zip/zip_writer.h"

#include <fmt/format.h>

#include <algorithm>

#include "formats/file/inflate.h"
#include "formats/zip/directory.h"

namespace plimsoll::engine {
namespace {

constexpr int64_t kLimit32 = 0xffffffff;
constexpr uint16_t kDate1980 = 0x0021;  // the earliest date: files must not differ by the time of writing

class Record {
 public:
  template <typename T>
  Record& put(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) text_ += static_cast<char>(value >> (8 * i) & 0xff);
    return *this;
  }
  Record& text(std::string_view text) {
    text_ += text;
    return *this;
  }
  size_t size() const { return text_.size(); }
  std::span<const std::byte> bytes() const { return bytes_of_text(text_); }
  const std::string& str() const { return text_; }

 private:
  std::string text_;
};

uint32_t checksum(uint32_t crc, std::span<const std::byte> piece) {
  return crc32_of(crc, piece);
}

uint32_t low(int64_t value) {
  return static_cast<uint32_t>(std::min(value, kLimit32));
}
uint16_t version(bool large) {
  return large ? 45 : 20;
}

// Writes the fields that local and directory headers share, from "version needed" to the sizes.
void put_common(Record& record, bool large, uint32_t crc32, int64_t bytes) {
  const uint16_t utf8_names = 0x0800, stored = 0, midnight = 0;
  record.put(version(large)).put(utf8_names).put(stored).put(midnight).put(kDate1980);
  record.put(crc32).put(low(bytes)).put(low(bytes));
}

}  // namespace

Status ZipWriter::write_header(const Written& entry, bool large) {
  Record extra;
  if (large) extra.put(kZip64Extra).put(uint16_t{16}).put(uint64_t(entry.bytes)).put(uint64_t(entry.bytes));
  Record header;
  header.put(kZipLocalHeader);
  put_common(header, large, entry.crc32, large ? kLimit32 : entry.bytes);
  header.put(static_cast<uint16_t>(entry.name.size())).put(static_cast<uint16_t>(extra.size()));
  header.text(entry.name).text(extra.str());
  const bool is_new = entry.offset == file_.position();
  return is_new ? file_.write(header.bytes()) : file_.write_at(entry.offset, header.bytes());
}

Status ZipWriter::add(const std::string& name, int64_t bytes, const std::function<Status(const Sink&)>& produce) {
  Written entry{name, bytes, file_.position(), 0};
  const bool large = bytes >= kLimit32;
  PLIMSOLL_TRY(write_header(entry, large));
  const int64_t begin = file_.position();
  PLIMSOLL_TRY(produce([&](std::span<const std::byte> piece) -> Status {
    entry.crc32 = checksum(entry.crc32, piece);
    return file_.write(piece);
  }));
  if (file_.position() - begin != bytes)
    return fail(ErrorCode::kInternal, fmt::format("{}: entry {} has {} bytes, expected {}", file_.target(), name,
                                                  file_.position() - begin, bytes));
  PLIMSOLL_TRY(write_header(entry, large));
  entries_.push_back(std::move(entry));
  return {};
}

Status ZipWriter::add_in_place(const std::string& name, int64_t expected, const std::function<Status()>& produce) {
  Written entry{name, 0, file_.position(), 0};
  // The header is written before the entry's size is known, so near the limit it gets the ZIP64 form.
  const bool large = expected >= kLimit32 / 2;
  PLIMSOLL_TRY(write_header(entry, large));
  const int64_t begin = file_.position();
  PLIMSOLL_TRY(produce());
  entry.bytes = file_.position() - begin;
  if (!large && entry.bytes >= kLimit32)
    return fail(ErrorCode::kInternal, fmt::format("{}: entry {} has {} bytes, expected about {}", file_.target(), name,
                                                  entry.bytes, expected));
  std::vector<std::byte> buffer(static_cast<size_t>(kStreamBuffer));
  for (int64_t done = 0; done < entry.bytes;) {
    const std::span piece(buffer.data(), static_cast<size_t>(std::min(entry.bytes - done, kStreamBuffer)));
    PLIMSOLL_TRY(file_.read_at(begin + done, piece));
    entry.crc32 = checksum(entry.crc32, piece);
    done += static_cast<int64_t>(piece.size());
  }
  PLIMSOLL_TRY(write_header(entry, large));
  entries_.push_back(std::move(entry));
  return {};
}

Status ZipWriter::add_text(const std::string& name, std::string_view text) {
  return add(name, static_cast<int64_t>(text.size()), [&](const Sink& sink) { return sink(bytes_of_text(text)); });
}

Status ZipWriter::finish() {
  const int64_t begin = file_.position();
  for (const auto& entry : entries_) {
    const bool large_size = entry.bytes >= kLimit32, large_offset = entry.offset >= kLimit32;
    Record values;
    if (large_size) values.put(uint64_t(entry.bytes)).put(uint64_t(entry.bytes));
    if (large_offset) values.put(uint64_t(entry.offset));
    Record extra;
    if (values.size() > 0) extra.put(kZip64Extra).put(static_cast<uint16_t>(values.size())).text(values.str());
    const bool large = large_size || large_offset;
    Record header;
    const uint16_t made_by_unix = 3 << 8;
    header.put(kZipDirectoryHeader).put(static_cast<uint16_t>(made_by_unix | version(large)));
    put_common(header, large, entry.crc32, entry.bytes);
    header.put(static_cast<uint16_t>(entry.name.size())).put(static_cast<uint16_t>(extra.size()));
    const uint16_t no_comment = 0, first_disk = 0, binary = 0;
    const uint32_t rw_for_owner = 0100600u << 16;
    header.put(no_comment)
        .put(first_disk)
        .put(binary)
        .put(rw_for_owner)
        .put(low(entry.offset))
        .text(entry.name)
        .text(extra.str());
    PLIMSOLL_TRY(file_.write(header.bytes()));
  }
  const int64_t bytes = file_.position() - begin;
  const auto count = static_cast<uint64_t>(entries_.size());
  Record end;
  if (begin >= kLimit32 || bytes >= kLimit32 || count >= 0xffff) {
    const uint32_t disk = 0, disks = 1;
    end.put(kZip64End).put(uint64_t(kZip64EndBytes - 12)).put(version(true)).put(version(true)).put(disk).put(disk);
    end.put(count).put(count).put(uint64_t(bytes)).put(uint64_t(begin));
    end.put(kZip64Locator).put(disk).put(uint64_t(begin + bytes)).put(disks);
  }
  const auto short_count = static_cast<uint16_t>(std::min<uint64_t>(count, 0xffff));
  const uint16_t disk = 0, no_comment = 0;
  end.put(kZipEnd)
      .put(disk)
      .put(disk)
      .put(short_count)
      .put(short_count)
      .put(low(bytes))
      .put(low(begin))
      .put(no_comment);
  return file_.write(end.bytes());
}

}  // namespace plimsoll::engine
