// The framing of a TFRecord file: a length of 8 bytes, its masked CRC-32C, the record, and the record's masked CRC-32C.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "formats/file/file.h"

namespace plimsoll::engine {

inline constexpr int64_t kRecordHead = 12, kRecordTail = 4;

// Returns whether these bytes (at least kRecordHead) are the head of a record.
bool begins_record(std::string_view start);

// A record of a file, without its framing.
struct RecordPlace {
  int64_t offset = 0;
  int64_t bytes = 0;

  int64_t next() const { return offset + bytes + kRecordTail; }
};

// Reads heads in the order of a file, through a buffer of the caller of at least kRecordHead bytes.
class RecordHeads {
 public:
  RecordHeads(const File& file, std::span<std::byte> buffer) : file_(file), buffer_(buffer) {}

  // Returns the record whose head lies at `position`, or nullopt at the end of the file. Fails with P401 if the head is
  // damaged or the record is cut short.
  Result<std::optional<RecordPlace>> at(int64_t position);
  // Returns the position of the first undamaged record from `position` on; the size of the file if there is none.
  Result<int64_t> search(int64_t position);

 private:
  Result<std::span<const std::byte>> view(int64_t position, int64_t bytes);

  const File& file_;
  std::span<std::byte> buffer_;
  int64_t begin_ = 0, end_ = 0;  // the part of the file in the buffer
};

// Reads a record and checks its checksum. `into` must hold its bytes and kRecordTail more.
Status read_record(const File& file, const RecordPlace& place, std::span<std::byte> into);
// Checks the checksum of a record that was read with its kRecordTail. Fails with P401.
Status check_record(const File& file, const RecordPlace& place, std::span<const std::byte> whole);

}  // namespace plimsoll::engine
