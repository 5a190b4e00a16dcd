#include "formats/image/image.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "formats/limits.h"

namespace plimsoll::engine {

Error bad_image(const EncodedImage& image, const std::string& what, int64_t at) {
  return {ErrorCode::kBadDataFile, fmt::format("{}: {}, at byte {}", image.label, what, at), {}, {}};
}

Status check_image_size(const EncodedImage& image, int64_t width, int64_t height) {
  if (width > 0 && height > 0 && width <= limits::kImagePixels / height) return {};
  Error error = bad_image(image, fmt::format("a picture of {} x {} pixels", width, height), image.offset);
  return fail(std::move(error.fact(fmt::format("at most {} pixels are decoded", limits::kImagePixels))));
}

std::span<const std::byte> ImageInput::next() {
  const int64_t left = image_.size - position_;
  if (left <= 0 || !failed_) return {};
  const auto piece = buffer_.first(static_cast<size_t>(std::min<int64_t>(left, static_cast<int64_t>(buffer_.size()))));
  const auto start = std::chrono::steady_clock::now();
  failed_ = image_.file->pread_exact(image_.offset + position_, piece);
  if (image_.read_seconds != nullptr)
    *image_.read_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!failed_) return {};
  position_ += static_cast<int64_t>(piece.size());
  return piece;
}

void ImageBuffer::fit(const ImageHeader& header) {
  if (const auto bytes = static_cast<size_t>(header.buffer_bytes); memory.size() < bytes) memory.resize(bytes);
  library_bytes = std::max(library_bytes, header.library_bytes);
}

namespace {

// Returns the name of a kind that this program does not read.
std::string_view other_kind(std::string_view start) {
  if (start.starts_with("RIFF") && start.substr(8, 4) == "WEBP") return "a WebP picture";
  return "";
}

Result<ImageKind> kind_of(const EncodedImage& image) {
  std::array<char, 12> start{};
  const auto there = static_cast<size_t>(std::clamp<int64_t>(image.size, 0, start.size()));
  PLIMSOLL_TRY(image.file->pread_exact(image.offset, std::as_writable_bytes(std::span(start).first(there))));
  const std::string_view text(start.data(), start.size());
  if (text.starts_with("\xff\xd8\xff")) return ImageKind::kJpeg;
  if (text.starts_with("\x89PNG\r\n\x1a\n")) return ImageKind::kPng;
  if (text.starts_with("BM")) return ImageKind::kBmp;
  if (text.starts_with("GIF87a") || text.starts_with("GIF89a")) return ImageKind::kGif;
  const std::string_view other = other_kind(text);
  Error error = bad_image(
      image, other.empty() ? "not a JPEG, PNG, BMP or GIF picture" : fmt::format("{}, which is not read yet", other),
      image.offset);
  return fail(error.remedy("convert it to PNG"));
}

}  // namespace

Result<ImageHeader> read_image_header(const EncodedImage& image) {
  PLIMSOLL_ASSIGN(const ImageKind kind, kind_of(image));
  switch (kind) {
    case ImageKind::kPng:
      return read_png_header(image);
    case ImageKind::kBmp:
      return read_bmp_header(image);
    case ImageKind::kGif:
      return read_gif_header(image);
    case ImageKind::kJpeg:
      break;
  }
  return read_jpeg_header(image);
}

Status decode_image(const EncodedImage& image, int channels, ImageBuffer& buffer, PixelRows& rows) {
  if (buffer.memory.size() < kImageInput)
    return fail(ErrorCode::kInternal, fmt::format("{}: no room to decode it in", image.label));
  PLIMSOLL_ASSIGN(const ImageKind kind, kind_of(image));
  switch (kind) {
    case ImageKind::kPng:
      return decode_png(image, channels, buffer, rows);
    case ImageKind::kBmp:
      return decode_bmp(image, channels, buffer, rows);
    case ImageKind::kGif:
      return decode_gif(image, channels, buffer, rows);
    case ImageKind::kJpeg:
      break;
  }
  return decode_jpeg(image, channels, buffer, rows);
}

}  // namespace plimsoll::engine
