#include "formats/tfrecord/records.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "formats/limits.h"
#include "formats/tfrecord/crc32c.h"

namespace plimsoll::engine {
namespace {

template <typename T>
T load(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

bool has_valid_length(std::span<const std::byte> head) {
  return masked_crc32c(head.first(8)) == load<uint32_t>(head.subspan(8));
}

Error bad_record(const File& file, std::string_view what, int64_t position) {
  return {ErrorCode::kBadDataFile, fmt::format("{}: {}, at byte {}", file.path(), what, position), {}, {}};
}

}  // namespace

bool begins_record(std::string_view start) {
  return start.size() >= static_cast<size_t>(kRecordHead) && has_valid_length(std::as_bytes(std::span(start)));
}

Result<std::span<const std::byte>> RecordHeads::view(int64_t position, int64_t bytes) {
  if (position < begin_ || position + bytes > end_) {
    const int64_t there = std::min<int64_t>(static_cast<int64_t>(buffer_.size()), file_.size() - position);
    begin_ = end_ = position;
    PLIMSOLL_TRY(file_.pread_exact(position, buffer_.first(static_cast<size_t>(there))));
    end_ = position + there;
  }
  return std::span<const std::byte>(buffer_).subspan(static_cast<size_t>(position - begin_),
                                                     static_cast<size_t>(bytes));
}

Result<std::optional<RecordPlace>> RecordHeads::at(int64_t position) {
  const int64_t left = file_.size() - position;
  if (left == 0) return std::nullopt;
  if (left < kRecordHead) return fail(bad_record(file_, "the file ends inside the head of a record", position));
  PLIMSOLL_ASSIGN(const auto head, view(position, kRecordHead));
  if (!has_valid_length(head)) return fail(bad_record(file_, "the length of a record is damaged", position));
  const auto bytes = load<uint64_t>(head);
  if (bytes > static_cast<uint64_t>(limits::kRecordBytes))
    return fail(bad_record(file_, fmt::format("a record of {} bytes; at most {} are read", bytes, limits::kRecordBytes),
                           position));
  if (static_cast<int64_t>(bytes) > left - kRecordHead - kRecordTail)
    return fail(bad_record(file_, fmt::format("the file is cut short in a record of {} bytes", bytes), position));
  return RecordPlace{position + kRecordHead, static_cast<int64_t>(bytes)};
}

Result<int64_t> RecordHeads::search(int64_t position) {
  for (; position + kRecordHead <= file_.size(); ++position) {
    PLIMSOLL_ASSIGN(const auto head, view(position, kRecordHead));
    if (!has_valid_length(head)) continue;
    const auto place = at(position);
    if (!place || !*place) continue;
    std::vector<std::byte> record(static_cast<size_t>((*place)->bytes + kRecordTail));
    if (read_record(file_, **place, record)) return position;
  }
  return file_.size();
}

Status read_record(const File& file, const RecordPlace& place, std::span<std::byte> into) {
  const auto whole = into.first(static_cast<size_t>(place.bytes + kRecordTail));
  PLIMSOLL_TRY(file.pread_exact(place.offset, whole));
  return check_record(file, place, whole);
}

Status check_record(const File& file, const RecordPlace& place, std::span<const std::byte> whole) {
  const auto record = whole.first(static_cast<size_t>(place.bytes));
  if (masked_crc32c(record) == load<uint32_t>(whole.subspan(record.size()))) return {};
  return fail(bad_record(file, fmt::format("a record of {} bytes has a wrong checksum", place.bytes), place.offset));
}

}  // namespace plimsoll::engine
