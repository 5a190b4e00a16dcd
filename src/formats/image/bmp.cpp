// BMP without compression, as tf.io.decode_image reads it: 24 bits per pixel are BGR, 32 are BGR with opacity. The file
// must have as many channels as are asked for.
#include <fmt/format.h>

#include <array>
#include <cstring>

#include "formats/image/image.h"

namespace plimsoll::engine {
namespace {

constexpr size_t kHead = 34;

struct Bitmap {
  int64_t pixels = 0;  // where the pixels begin
  int64_t width = 0, height = 0, channels = 0;
  bool top_down = false;

  int64_t row_bytes() const { return (width * channels + 3) / 4 * 4; }
};

template <typename T>
int64_t number(std::span<const std::byte> head, size_t at) {
  T value{};
  std::memcpy(&value, head.data() + at, sizeof value);
  return value;
}

Result<Bitmap> read_bitmap(const EncodedImage& image) {
  std::array<std::byte, kHead> head{};
  if (image.size < static_cast<int64_t>(kHead)) return fail(bad_image(image, "the BMP is cut short", image.offset));
  PLIMSOLL_TRY(image.file->pread_exact(image.offset, head));
  Bitmap bitmap;
  bitmap.pixels = number<uint32_t>(head, 10);
  bitmap.width = number<int32_t>(head, 18);
  const int64_t height = number<int32_t>(head, 22), bits = number<uint16_t>(head, 28);
  const int64_t compression = number<uint32_t>(head, 30);
  bitmap.top_down = height < 0;
  bitmap.height = height < 0 ? -height : height;
  bitmap.channels = bits / 8;
  PLIMSOLL_TRY(check_image_size(image, bitmap.width, bitmap.height));
  constexpr int64_t kBitFields = 3;
  if ((bits != 24 && bits != 32) || (compression != 0 && compression != kBitFields))
    return fail(bad_image(image,
                          fmt::format("a BMP of {} bits per pixel, compression {}, is not read", bits, compression),
                          image.offset + 28)
                    .remedy("convert it to PNG"));
  if (bitmap.pixels > image.size || bitmap.height * bitmap.row_bytes() > image.size - bitmap.pixels)
    return fail(bad_image(image, "the BMP is cut short", image.offset + image.size));
  return bitmap;
}

}  // namespace

Result<ImageHeader> read_bmp_header(const EncodedImage& image) {
  PLIMSOLL_ASSIGN(const Bitmap bitmap, read_bitmap(image));
  ImageHeader header;
  header.kind = ImageKind::kBmp;
  header.width = bitmap.width;
  header.height = bitmap.height;
  header.buffer_bytes = std::max<Bytes>(bitmap.row_bytes(), kImageInput);
  return header;
}

Status decode_bmp(const EncodedImage& image, int channels, ImageBuffer& buffer, PixelRows& rows) {
  PLIMSOLL_ASSIGN(const Bitmap bitmap, read_bitmap(image));
  if (bitmap.channels != channels)
    return fail(bad_image(image,
                          fmt::format("a BMP of {} bits per pixel is no picture of {} channels; TensorFlow "
                                      "refuses it too",
                                      bitmap.channels * 8, channels),
                          image.offset + 28)
                    .remedy("convert it to PNG"));
  const auto bytes = static_cast<size_t>(bitmap.row_bytes());
  if (buffer.memory.size() < bytes) return fail(ErrorCode::kInternal, image.label + ": no room to decode it in");
  const auto row = std::span(buffer.memory).first(bytes);
  rows.begin(bitmap.height, bitmap.width);
  for (int64_t y = 0; y < bitmap.height; ++y) {
    const int64_t at = bitmap.top_down ? y : bitmap.height - 1 - y;
    PLIMSOLL_TRY(image.file->pread_exact(image.offset + bitmap.pixels + at * bitmap.row_bytes(), row));
    auto* pixels = reinterpret_cast<uint8_t*>(row.data());
    for (int64_t x = 0; x < bitmap.width; ++x) std::swap(pixels[x * channels], pixels[x * channels + 2]);
    rows.row(y, pixels);
  }
  return {};
}

}  // namespace plimsoll::engine
