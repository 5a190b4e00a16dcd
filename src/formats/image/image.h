// JPEG, PNG, BMP and GIF pictures, decoded row by row to 8 bits per channel. The pixels are those of
// tf.image.decode_image.
//
// An EXIF orientation is ignored, as in TensorFlow. Memory does not grow with the picture, except for pictures whose
// rows are spread over the file: a progressive JPEG (its coefficients are held) an interlaced PNG and a GIF
// (its pixels).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "formats/file/file.h"

namespace plimsoll::engine {

// An encoded picture: a whole file, or a part of one.
struct EncodedImage {
  const File* file = nullptr;
  int64_t offset = 0, size = 0;
  std::string label;               // the name in messages
  double* read_seconds = nullptr;  // if set, the time that reading the file takes is added to it

  static EncodedImage whole(const File& file) { return {&file, 0, file.size(), file.path(), nullptr}; }
};

enum class ImageKind : uint8_t { kJpeg, kPng, kBmp, kGif };

struct ImageHeader {
  ImageKind kind = ImageKind::kJpeg;
  int64_t width = 0, height = 0;
  // Upper bound on the memory that the decoder allocates, and that it needs from the caller (ImageBuffer).
  Bytes library_bytes = 0, buffer_bytes = 0;
};

// Memory that a reader of pictures keeps from one picture to the next.
struct ImageBuffer {
  std::vector<std::byte> memory;
  Bytes library_bytes = 0;  // what the decoder may allocate

  // Makes room for pictures like this one.
  void fit(const ImageHeader& header);
};

// Receives a picture row by row, from top to bottom.
class PixelRows {
 public:
  virtual ~PixelRows() = default;
  virtual void begin(int64_t height, int64_t width) = 0;
  virtual void row(int64_t y, const uint8_t* pixels) = 0;
};

// Reads the beginning of a picture. Fails with P401 if it is no picture, is damaged, or has more pixels than
// limits::kImagePixels.
Result<ImageHeader> read_image_header(const EncodedImage& image);

// Decodes to `channels` bytes per pixel: 1 for grey, 3 for RGB, 4 for RGB with opacity (PNG alone). Fails with P401 and
// the position of the damage, or if the picture needs more room than `buffer` has.
Status decode_image(const EncodedImage& image, int channels, ImageBuffer& buffer, PixelRows& rows);

// The parts of decode_image and read_image_header, one per kind.
inline constexpr size_t kImageInput = 128 * 1024;  // bytes of a file that are read at once
Result<ImageHeader> read_jpeg_header(const EncodedImage& image);
Status decode_jpeg(const EncodedImage& image, int channels, ImageBuffer& buffer, PixelRows& rows);
Result<ImageHeader> read_png_header(const EncodedImage& image);
Status decode_png(const EncodedImage& image, int channels, ImageBuffer& buffer, PixelRows& rows);

// A PNG of 8 bits per channel without palette and interlacing, which decode_plain_png() reads without libpng.
struct PlainPng {
  int64_t width = 0, height = 0;
  int channels = 0;  // 1 grey, 2 grey with opacity, 3 RGB, 4 RGB with opacity

  Bytes buffer_bytes() const;
};
// Nothing if it is another kind of PNG, or its header is damaged.
Result<std::optional<PlainPng>> read_plain_png(const EncodedImage& image);
// Returns false, and has passed on no row, if libpng must decode the picture.
Result<bool> decode_plain_png(const EncodedImage& image, int channels, ImageBuffer& buffer, PixelRows& rows);

Result<ImageHeader> read_bmp_header(const EncodedImage& image);
Status decode_bmp(const EncodedImage& image, int channels, ImageBuffer& buffer, PixelRows& rows);
Result<ImageHeader> read_gif_header(const EncodedImage& image);
Status decode_gif(const EncodedImage& image, int channels, ImageBuffer& buffer, PixelRows& rows);

// Returns P401 for a picture: "cats/1.jpg: ..., at byte 123". `at` counts from the beginning of the file.
Error bad_image(const EncodedImage& image, const std::string& what, int64_t at);
// Fails unless both sides are positive and the number of pixels is within the limit.
Status check_image_size(const EncodedImage& image, int64_t width, int64_t height);

// The bytes of an encoded picture in order, through a buffer of the caller.
class ImageInput {
 public:
  ImageInput(const EncodedImage& image, std::span<std::byte> buffer) : image_(image), buffer_(buffer) {}

  // Returns the next bytes; none at the end. A failed read is the end too, and failed() says why.
  std::span<const std::byte> next();
  int64_t position() const { return position_; }  // bytes handed out so far
  const Status& failed() const { return failed_; }

 private:
  const EncodedImage& image_;
  std::span<std::byte> buffer_;
  int64_t position_ = 0;
  Status failed_;
};

}  // namespace plimsoll::engine
