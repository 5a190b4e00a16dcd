// The PNGs that most data sets have: 8 bits per channel, no palette, no interlacing. Their chunks are read here, with
// libpng's rules for damaged ones; all others are libpng's work (png.cpp). Nothing is decided after the first row.
#include <array>
#include <cstring>

#include "formats/file/inflate.h"
#include "formats/image/image.h"
#include "formats/image/png_rows.h"

namespace plimsoll::engine {
namespace {

constexpr size_t kSignature = 8, kHeaderEnd = 33;  // the first chunk, IHDR, ends there
constexpr size_t kUnpacked = 64 * 1024;

uint32_t big_endian(const std::byte* from) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | std::to_integer<uint32_t>(from[i]);
  return value;
}

bool has_type(const std::byte* chunk, const char* type) {
  return std::memcmp(chunk + 4, type, 4) == 0;
}

// Reads the header of a plain PNG; nothing if it is another kind, or damaged.
std::optional<PlainPng> parse_header(std::span<const std::byte> start) {
  const std::byte* const chunk = start.data() + kSignature;
  if (big_endian(chunk) != 13 || !has_type(chunk, "IHDR")) return std::nullopt;
  if (crc32_of(0, start.subspan(kSignature + 4, 4 + 13)) != big_endian(chunk + 8 + 13)) return std::nullopt;
  PlainPng png;
  png.width = big_endian(chunk + 8);
  png.height = big_endian(chunk + 12);
  const auto field = [&](size_t i) { return std::to_integer<int>(chunk[16 + i]); };
  const int depth = field(0), color = field(1);
  const bool usual = field(2) == 0 && field(3) == 0 && field(4) == 0;  // compression, filters, no interlacing
  if (depth != 8 || !usual || (color != 0 && color != 2 && color != 4 && color != 6)) return std::nullopt;
  if (png.width < 1 || png.height < 1 || png.width > INT32_MAX || png.height > INT32_MAX) return std::nullopt;
  png.channels = (color & 2 ? 3 : 1) + (color & 4 ? 1 : 0);
  return png;
}

size_t row_room(const PlainPng& png) {
  return 2 * kPngMargin + static_cast<size_t>(png.width * png.channels);
}

// Reads the file's chunks, and the deflated data in them as one stream.
class Chunks {
 public:
  Chunks(const EncodedImage& image, std::span<std::byte> buffer) : image_(image), input_(image, buffer) {}

  int64_t position() const { return image_.offset + input_.position() - static_cast<int64_t>(unread_.size()); }
  Error damaged(const char* what) const {
    if (!input_.failed()) return input_.failed().error();
    return bad_image(image_, std::string("the PNG is damaged: ") + what, position());
  }

  bool skip(size_t bytes) {
    while (bytes > 0) {
      if (unread_.empty() && !more()) return false;
      const size_t now = std::min(bytes, unread_.size());
      unread_ = unread_.subspan(now);
      bytes -= now;
    }
    return true;
  }

  bool read(std::span<std::byte> into) {
    while (!into.empty()) {
      if (unread_.empty() && !more()) return false;
      const size_t now = std::min(into.size(), unread_.size());
      std::memcpy(into.data(), unread_.data(), now);
      unread_ = unread_.subspan(now);
      into = into.subspan(now);
    }
    return true;
  }

  // Goes to the first IDAT. Returns false if a chunk before it matters, or is damaged.
  bool find_data() {
    std::array<std::byte, 8> head{};
    for (;;) {
      if (!read(head)) return false;
      const uint32_t bytes = big_endian(head.data());
      if (bytes > INT32_MAX) return false;
      if (has_type(head.data(), "IDAT")) return begin_data(head);
      const bool critical = (std::to_integer<int>(head[4]) & 0x20) == 0;
      if (critical || has_type(head.data(), "tRNS") || !skip(size_t{bytes} + 4)) return false;
    }
  }

  // Returns the next deflated bytes; none with an error if there are none.
  Result<std::span<const std::byte>> data() {
    while (left_ == 0) PLIMSOLL_TRY(next_data());
    if (unread_.empty() && !more()) return fail(damaged("it is cut short"));
    const auto piece = unread_.first(std::min<size_t>(unread_.size(), left_));
    return piece;
  }
  void used(std::span<const std::byte> piece, size_t bytes) {
    crc_ = crc32_of(crc_, piece.first(bytes));
    unread_ = unread_.subspan(bytes);
    left_ -= static_cast<uint32_t>(bytes);
  }

 private:
  bool more() {
    unread_ = input_.next();
    return !unread_.empty();
  }

  bool begin_data(std::span<const std::byte, 8> head) {
    left_ = big_endian(head.data());
    crc_ = crc32_of(0, head.subspan(4));
    return true;
  }

  Status next_data() {
    std::array<std::byte, 12> end{};
    if (!read(end)) return fail(damaged("it is cut short"));
    if (crc_ != big_endian(end.data())) return fail(damaged("IDAT: CRC error"));
    const auto head = std::span(end).last<8>();
    if (!has_type(head.data(), "IDAT")) return fail(damaged("Not enough image data"));
    if (big_endian(head.data()) > INT32_MAX) return fail(damaged("IDAT: chunk data is too large"));
    begin_data(head);
    return {};
  }

  const EncodedImage& image_;
  ImageInput input_;
  std::span<const std::byte> unread_;
  uint32_t left_ = 0, crc_ = 0;  // of the IDAT
};

// Cuts the inflated bytes into rows, and undoes their filters.
class Rows {
 public:
  Rows(const PlainPng& png, int channels, std::byte* memory, PixelRows& rows)
      : png_(png), channels_(channels), rows_(rows) {
    auto* at = reinterpret_cast<uint8_t*>(memory);
    std::memset(at, 0, 2 * row_room(png));
    row_ = at + kPngMargin;
    above_ = row_ + row_room(png);
    changed_ = at + 2 * row_room(png);
  }

  bool done() const { return y_ == png_.height; }

  // Returns false for a filter that does not exist.
  bool take(std::span<const std::byte> unpacked) {
    const int64_t bytes = png_.width * png_.channels;
    while (!unpacked.empty() && !done()) {
      if (filter_ < 0) {
        filter_ = std::to_integer<int>(unpacked[0]);
        if (filter_ > 4) return false;
        unpacked = unpacked.subspan(1);
        continue;
      }
      const size_t now = std::min(unpacked.size(), static_cast<size_t>(bytes - got_));
      std::memcpy(row_ + got_, unpacked.data(), now);
      unpacked = unpacked.subspan(now);
      got_ += static_cast<int64_t>(now);
      if (got_ == bytes) finish(bytes);
    }
    return true;
  }

 private:
  void finish(int64_t bytes) {
    undo_png_filter(filter_, png_.channels, bytes, row_, above_);
    const uint8_t* pixels = row_;
    if (png_.channels != channels_) {
      change_channels(png_.channels, channels_, png_.width, row_, changed_);
      pixels = changed_;
    }
    rows_.row(y_++, pixels);
    std::swap(row_, above_);
    filter_ = -1;
    got_ = 0;
  }

  const PlainPng& png_;
  const int channels_;
  PixelRows& rows_;
  uint8_t *row_ = nullptr, *above_ = nullptr, *changed_ = nullptr;
  int64_t y_ = 0, got_ = 0;  // got_: bytes of the row
  int filter_ = -1;          // of the row; -1: not read yet
};

// zlib's header: 32 KiB of window at most, no dictionary.
bool is_zlib(std::span<const std::byte, 2> head) {
  const auto method = std::to_integer<uint32_t>(head[0]), flags = std::to_integer<uint32_t>(head[1]);
  return (method & 15) == 8 && method >> 4 <= 7 && (method << 8 | flags) % 31 == 0 && (flags & 32) == 0;
}

// Reads the two bytes of zlib's header, which may lie in two chunks.
Result<bool> read_zlib_header(Chunks& chunks) {
  std::array<std::byte, 2> head{};
  for (std::byte& one : head) {
    PLIMSOLL_ASSIGN(const auto piece, chunks.data());
    one = piece[0];
    chunks.used(piece, 1);
  }
  return is_zlib(head);
}

}  // namespace

Bytes PlainPng::buffer_bytes() const {
  return static_cast<Bytes>(kImageInput + kUnpacked + 2 * row_room(*this) + static_cast<size_t>(4 * width));
}

Result<std::optional<PlainPng>> read_plain_png(const EncodedImage& image) {
  std::array<std::byte, kHeaderEnd> start{};
  if (image.size < static_cast<int64_t>(start.size())) return std::optional<PlainPng>();
  PLIMSOLL_TRY(image.file->pread_exact(image.offset, start));
  return parse_header(start);
}

Result<bool> decode_plain_png(const EncodedImage& image, int channels, ImageBuffer& buffer, PixelRows& rows) {
  PLIMSOLL_ASSIGN(const auto png, read_plain_png(image));
  if (!png || (channels < 3 && png->channels >= 3)) return false;  // libpng turns colours into grey
  if (buffer.memory.size() < static_cast<size_t>(png->buffer_bytes()) || buffer.library_bytes < Inflater::kState)
    return false;
  const auto memory = std::span(buffer.memory);
  const auto unpacked = memory.subspan(kImageInput, kUnpacked);
  Chunks chunks(image, memory.first(kImageInput));
  if (!chunks.skip(kHeaderEnd) || !chunks.find_data()) return false;
  const auto inflater = Inflater::create(DeflateWrapper::kNone);
  if (!inflater) return fail(ErrorCode::kOutOfMemory, image.label + ": no memory to decode it");
  PLIMSOLL_ASSIGN(const bool deflated, read_zlib_header(chunks));
  if (!deflated) return false;
  rows.begin(png->height, png->width);
  Rows cut(*png, channels, unpacked.data() + unpacked.size(), rows);
  for (bool full = false; !cut.done();) {
    std::span<const std::byte> piece;
    if (!full) {
      PLIMSOLL_ASSIGN(piece, chunks.data());
    }
    const Inflater::Step step = inflater->step(piece, unpacked);
    if (step.state == Inflater::State::kDamaged) return fail(chunks.damaged("IDAT: its deflated data are damaged"));
    chunks.used(piece, step.used);
    if (!cut.take(unpacked.first(step.made))) return fail(chunks.damaged("bad adaptive filter value"));
    full = step.made == unpacked.size();
    if (cut.done()) break;
    if (step.state == Inflater::State::kEnd) return fail(chunks.damaged("Not enough image data"));
    if (!full && step.used == 0 && step.made == 0) return fail(chunks.damaged("its deflated data do not go on"));
  }
  return true;
}

}  // namespace plimsoll::engine
