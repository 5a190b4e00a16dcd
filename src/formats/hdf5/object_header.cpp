#include "formats/hdf5/object_header.h"

#include <fmt/format.h>

#include "formats/limits.h"

namespace plimsoll::engine {
namespace {

constexpr std::string_view kName = "object header";
constexpr size_t kChecksum = 4;

struct Part {
  uint64_t address, bytes;
};

// The format of the messages, which differs between the header versions.
struct Format {
  int version = 1;
  bool creation_order = false;
  size_t messages_left = 0;  // only in version 1, which stores their number
};

Status take_messages(Hdf5Reader& reader, std::span<const std::byte> block, Format& format, Hdf5Header& header,
                     std::vector<Part>& parts) {
  Hdf5Cursor cursor(block);
  const size_t prefix = format.version == 1 ? 8 : format.creation_order ? 6 : 4;
  while (cursor.left() >= prefix) {
    if (format.version == 1) {
      if (format.messages_left == 0) return {};
      --format.messages_left;
    }
    const auto type = static_cast<Hdf5MessageType>(format.version == 1 ? cursor.u16() : cursor.u8());
    const uint16_t size = cursor.u16();
    const uint8_t flags = cursor.u8();
    cursor.skip(prefix - (format.version == 1 ? 5 : 4));
    const auto body = cursor.bytes(size);
    if (!cursor.ok()) return reader.damaged("a message is longer than the object header it lies in");
    if (static_cast<uint16_t>(type) == 0) continue;  // a gap
    if (header.messages.size() >= static_cast<size_t>(limits::kHdf5Messages))
      return reader.damaged(fmt::format("an object header has more than {} messages", limits::kHdf5Messages));
    header.messages.push_back({type, (flags & 2) != 0, body});
    if (type != Hdf5MessageType::kContinuation) continue;
    Hdf5Cursor target(body);
    const uint64_t address = reader.region().address(target), bytes = reader.region().length(target);
    if (!target.ok()) return reader.damaged("an object header's continuation is truncated");
    parts.push_back({address, bytes});
  }
  return {};
}

// Returns the first block without the prefix before its messages and the checksum after them.
Result<Part> first_part(Hdf5Reader& reader, uint64_t address, Format& format) {
  PLIMSOLL_ASSIGN(const auto bytes, reader.start_of(address, 32, kName));
  Hdf5Cursor cursor(bytes);
  if (bytes.size() >= 4 && Hdf5Cursor(bytes).signature("OHDR")) {
    cursor.skip(4);
    format.version = cursor.u8();
    const uint8_t flags = cursor.u8();
    format.creation_order = (flags & 0x04) != 0;
    size_t before = 6;
    if ((flags & 0x20) != 0) before += 16;
    if ((flags & 0x10) != 0) before += 4;
    cursor.skip(before - 6);
    const size_t width = size_t{1} << (flags & 3);
    const uint64_t size = cursor.number(width);
    if (!cursor.ok() || format.version != 2) return reader.damaged("an object header is damaged");
    return Part{address + before + width, size};
  }
  format.version = cursor.u8();
  cursor.skip(1);
  format.messages_left = cursor.u16();
  cursor.skip(4);
  const uint64_t size = cursor.u32();
  if (!cursor.ok() || format.version != 1)
    return reader.damaged(fmt::format("there is no object header at byte {}", address));
  return Part{address + 16, size};
}

}  // namespace

const Hdf5Message* Hdf5Header::find(Hdf5MessageType type) const {
  for (const auto& message : messages)
    if (message.type == type) return &message;
  return nullptr;
}

bool Hdf5Header::is_group() const {
  using enum Hdf5MessageType;
  return find(kSymbolTable) != nullptr || find(kLinkInfo) != nullptr || find(kLink) != nullptr ||
         find(kGroupInfo) != nullptr;
}

Result<Hdf5Header> read_object_header(Hdf5Reader& reader, uint64_t address) {
  Hdf5Header header;
  Format format;
  PLIMSOLL_ASSIGN(const Part first, first_part(reader, address, format));
  std::vector<Part> parts = {first};
  uint64_t total = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    total += std::min<uint64_t>(parts[i].bytes, limits::kHdf5HeaderBytes + 1);
    if (total > static_cast<uint64_t>(limits::kHdf5HeaderBytes))
      return reader.damaged(fmt::format("an object header is larger than {}", format_bytes(limits::kHdf5HeaderBytes)));
    PLIMSOLL_ASSIGN(auto bytes, reader.block(parts[i].address, parts[i].bytes, kName));
    header.blocks.push_back(std::move(bytes));
    std::span<const std::byte> body = header.blocks.back();
    if (i > 0 && format.version == 2) {
      if (!Hdf5Cursor(body).signature("OCHK") || body.size() < 4 + kChecksum)
        return reader.damaged("an object header's continuation is damaged");
      body = body.subspan(4, body.size() - 4 - kChecksum);
    }
    PLIMSOLL_TRY(take_messages(reader, body, format, header, parts));
  }
  return header;
}

}  // namespace plimsoll::engine
