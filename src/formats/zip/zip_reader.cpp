#include "formats/zip/zip_reader.h"

#include <fmt/format.h>
#include <zlib.h>

#include <array>

#include "formats/file/inflate.h"
#include "formats/zip/directory.h"

namespace plimsoll::engine {
namespace {

tl::unexpected<Error> damaged(ErrorCode code, const File& file, const ZipEntry& entry, std::string_view what) {
  Error error{code, fmt::format("{}: entry {}: {}", file.path(), entry.name, what), {}, {}};
  return fail(std::move(error.remedy("copy or write the file again")));
}

}  // namespace

Result<ZipReader> ZipReader::open(const std::string& path, ErrorCode bad) {
  ZipReader reader;
  PLIMSOLL_ASSIGN(reader.file_, File::open_read(path));
  reader.bad_ = bad;
  PLIMSOLL_ASSIGN(reader.entries_, read_zip_directory(reader.file_, bad));
  return reader;
}

const ZipEntry* ZipReader::find(std::string_view name) const {
  for (const auto& entry : entries_)
    if (entry.name == name) return &entry;
  return nullptr;
}

Result<int64_t> ZipReader::data_offset(const ZipEntry& entry) const {
  std::array<std::byte, kZipLocalBytes> header{};
  if (file_.size() - entry.header_offset < kZipLocalBytes)
    return damaged(bad_, file_, entry, "its header lies outside the file");
  PLIMSOLL_TRY(file_.pread_exact(entry.header_offset, header));
  if (zip_integer<uint32_t>(header, 0) != kZipLocalHeader)
    return damaged(bad_, file_, entry, fmt::format("there is no entry at byte {}", entry.header_offset));
  const int64_t offset =
      entry.header_offset + kZipLocalBytes + zip_integer<uint16_t>(header, 26) + zip_integer<uint16_t>(header, 28);
  if (offset > file_.size() || entry.compressed_bytes > file_.size() - offset)
    return damaged(bad_, file_, entry,
                   fmt::format("it is truncated: it needs {} bytes from byte {} on, but the file has {}",
                               entry.compressed_bytes, offset, file_.size()));
  return offset;
}

Status ZipReader::extract(const ZipEntry& entry, const Sink& sink) const {
  PLIMSOLL_ASSIGN(const int64_t offset, data_offset(entry));
  uint32_t crc = 0;
  int64_t bytes = 0;
  const Sink checked = [&](std::span<const std::byte> piece) -> Status {
    bytes += static_cast<int64_t>(piece.size());
    if (bytes > entry.bytes)
      return damaged(bad_, file_, entry, fmt::format("it decompresses to more than its {} bytes", entry.bytes));
    crc = crc32_of(crc, piece);
    return sink(piece);
  };
  PLIMSOLL_TRY(entry.deflated ? inflate(entry, offset, checked) : file_.stream(offset, entry.bytes, checked));
  if (bytes != entry.bytes)
    return damaged(bad_, file_, entry, fmt::format("it decompresses to {} bytes, expected {}", bytes, entry.bytes));
  if (crc != entry.crc32)
    return damaged(bad_, file_, entry, fmt::format("its CRC32 is {:08x}, expected {:08x}", crc, entry.crc32));
  return {};
}

Status ZipReader::inflate(const ZipEntry& entry, int64_t offset, const Sink& sink) const {
  z_stream stream{};
  if (::inflateInit2(&stream, -MAX_WBITS) != Z_OK) return fail(ErrorCode::kOutOfMemory, "zlib could not start");
  std::vector<std::byte> out(static_cast<size_t>(kStreamBuffer));
  int state = Z_OK;
  auto status = file_.stream(offset, entry.compressed_bytes, [&](std::span<const std::byte> piece) -> Status {
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(piece.data()));
    stream.avail_in = static_cast<uInt>(piece.size());
    do {
      stream.next_out = reinterpret_cast<Bytef*>(out.data());
      stream.avail_out = static_cast<uInt>(out.size());
      if (state == Z_STREAM_END) return {};
      state = ::inflate(&stream, Z_NO_FLUSH);
      if (state != Z_OK && state != Z_STREAM_END && state != Z_BUF_ERROR)
        return damaged(bad_, file_, entry, "its compressed data is damaged");
      PLIMSOLL_TRY(sink(std::span<const std::byte>(out.data(), out.size() - stream.avail_out)));
    } while (stream.avail_in > 0 || stream.avail_out == 0);
    return {};
  });
  ::inflateEnd(&stream);
  return status;
}

Result<std::string> ZipReader::text(const ZipEntry& entry, int64_t most) const {
  if (entry.bytes > most)
    return damaged(bad_, file_, entry,
                   fmt::format("it has {}, expected at most {}", format_bytes(entry.bytes), format_bytes(most)));
  std::string text;
  text.reserve(static_cast<size_t>(entry.bytes));
  PLIMSOLL_TRY(extract(entry, [&](std::span<const std::byte> piece) -> Status {
    text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    return {};
  }));
  return text;
}

}  // namespace plimsoll::engine
