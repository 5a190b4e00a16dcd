// PNGs that are not plain (png_plain.cpp) by libpng, with the conversions of TensorFlow: 16 bits become 8 by dropping
// the lower ones, palettes become colours, and opacity is dropped unless 4 channels are asked for.
//
// libpng reports errors by longjmp, so no object with a destructor lives between setjmp and the calls. It allocates
// through a counter with a limit, so that a small file cannot make it allocate without bound.
#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "formats/image/image.h"
#include "formats/limits.h"

namespace plimsoll::engine {
namespace {

// Besides its rows, libpng holds its state, inflate's window and a chunk.
constexpr Bytes kFixed = 192 * kKiB;
constexpr size_t kMostChunk = 64 * 1024;

struct Decoder {
  png_structp png = nullptr;
  png_infop info = nullptr;
  ImageInput* input = nullptr;
  std::span<const std::byte> unread;
  Bytes held = 0, most = 0;
  char message[128] = {};

  int64_t position() const { return input->position() - static_cast<int64_t>(unread.size()); }
};

struct alignas(std::max_align_t) BlockSize {
  size_t bytes;
};

png_voidp allocate(png_structp png, png_alloc_size_t bytes) {
  auto& decoder = *static_cast<Decoder*>(png_get_mem_ptr(png));
  if (bytes > static_cast<png_alloc_size_t>(decoder.most - decoder.held)) return nullptr;
  auto* const block = static_cast<BlockSize*>(std::malloc(sizeof(BlockSize) + bytes));
  if (block == nullptr) return nullptr;
  block->bytes = bytes;
  decoder.held += static_cast<Bytes>(bytes);
  return block + 1;
}

void release(png_structp png, png_voidp memory) {
  if (memory == nullptr) return;
  auto& decoder = *static_cast<Decoder*>(png_get_mem_ptr(png));
  auto* const block = static_cast<BlockSize*>(memory) - 1;
  decoder.held -= static_cast<Bytes>(block->bytes);
  std::free(block);
}

[[noreturn]] void on_error(png_structp png, png_const_charp message) {
  auto& decoder = *static_cast<Decoder*>(png_get_error_ptr(png));
  std::snprintf(decoder.message, sizeof decoder.message, "the PNG is damaged: %s", message);
  png_longjmp(png, 1);
}

void read(png_structp png, png_bytep into, size_t count) {
  auto& decoder = *static_cast<Decoder*>(png_get_io_ptr(png));
  while (count > 0) {
    if (decoder.unread.empty()) decoder.unread = decoder.input->next();
    if (decoder.unread.empty()) png_error(png, "it is cut short");
    const size_t now = std::min(count, decoder.unread.size());
    std::memcpy(into, decoder.unread.data(), now);
    decoder.unread = decoder.unread.subspan(now);
    into += now;
    count -= now;
  }
}

void close(Decoder& decoder) {
  png_destroy_read_struct(&decoder.png, &decoder.info, nullptr);
}

Error failure(const Decoder& decoder, const EncodedImage& image) {
  if (!decoder.input->failed()) return decoder.input->failed().error();
  return bad_image(image, decoder.message, image.offset + decoder.position());
}

// Creates libpng's objects. Returns false without memory for them.
bool create(Decoder& decoder, ImageInput& input, Bytes most) {
  decoder.input = &input;
  decoder.most = most;
  decoder.png = png_create_read_struct_2(
      PNG_LIBPNG_VER_STRING, &decoder, on_error, [](png_structp, png_const_charp) {}, &decoder, allocate, release);
  if (decoder.png != nullptr) decoder.info = png_create_info_struct(decoder.png);
  if (decoder.info == nullptr) {
    close(decoder);
    std::snprintf(decoder.message, sizeof decoder.message, "libpng has no memory");
    return false;
  }
  return true;
}

// Reads up to the first pixels. The caller has called setjmp. Chunks that change no pixel are not read.
void open(Decoder& decoder) {
  png_set_read_fn(decoder.png, &decoder, read);
  png_set_user_limits(decoder.png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
  png_set_chunk_cache_max(decoder.png, 16);
  png_set_chunk_malloc_max(decoder.png, kMostChunk);
  png_set_keep_unknown_chunks(decoder.png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  png_read_info(decoder.png, decoder.info);
}

Bytes row_bytes(int64_t width) {
  return 8 * width;  // at most 4 channels of 16 bits, before they are converted
}

// Asks for `channels` of 8 bits. Returns the number of passes over the picture.
int convert(Decoder& decoder, int channels) {
  const png_structp png = decoder.png;
  const int kind = png_get_color_type(png, decoder.info), depth = png_get_bit_depth(png, decoder.info);
  const bool clear = png_get_valid(png, decoder.info, PNG_INFO_tRNS) != 0, alpha = (kind & PNG_COLOR_MASK_ALPHA) != 0;
  if (channels % 2 == 0) {
    if (clear)
      png_set_tRNS_to_alpha(png);
    else if (!alpha)
      png_set_add_alpha(png, (1U << depth) - 1, PNG_FILLER_AFTER);  // TensorFlow's: 1 of 255 for a picture of one bit
  } else if (clear || alpha) {
    png_set_strip_alpha(png);
  }
  if (depth == 16) png_set_strip_16(png);
  png_set_packing(png);
  if (kind == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
  const bool gray = (kind & PNG_COLOR_MASK_COLOR) == 0;
  if (gray && depth < 8) png_set_expand_gray_1_2_4_to_8(png);
  if (channels < 3 && !gray) png_set_rgb_to_gray(png, 1, 0.299, 0.587);
  if (channels >= 3 && gray) png_set_gray_to_rgb(png);
  const int passes = png_set_interlace_handling(png);
  png_read_update_info(png, decoder.info);
  if (png_get_rowbytes(png, decoder.info) != static_cast<size_t>(channels) * png_get_image_width(png, decoder.info))
    png_error(png, "its rows have an unexpected size");
  return passes;
}

// All passes but the last only fill in the picture.
void read_rows(Decoder& decoder, int passes, int64_t height, size_t stride, uint8_t* pixels, PixelRows& rows) {
  for (int pass = 0; pass < passes; ++pass)
    for (int64_t y = 0; y < height; ++y) {
      uint8_t* const row = passes > 1 ? pixels + static_cast<size_t>(y) * stride : pixels;
      png_read_row(decoder.png, row, nullptr);
      if (pass + 1 == passes) rows.row(y, row);
    }
}

}  // namespace

Result<ImageHeader> read_png_header(const EncodedImage& image) {
  PLIMSOLL_ASSIGN(const auto plain, read_plain_png(image));
  if (plain) {
    PLIMSOLL_TRY(check_image_size(image, plain->width, plain->height));
    ImageHeader header{ImageKind::kPng, plain->width, plain->height, kFixed + 3 * row_bytes(plain->width), 0};
    // libpng decodes it after all if a chunk before its pixels asks for it.
    header.buffer_bytes = std::max(plain->buffer_bytes(), static_cast<Bytes>(kImageInput) + 4 * plain->width);
    return header;
  }
  std::byte buffer[4096];
  ImageInput input(image, buffer);
  Decoder decoder;
  if (!create(decoder, input, kFixed)) return fail(failure(decoder, image));
  if (setjmp(png_jmpbuf(decoder.png)) != 0) {
    close(decoder);
    return fail(failure(decoder, image));
  }
  open(decoder);
  ImageHeader header;
  header.kind = ImageKind::kPng;
  header.width = png_get_image_width(decoder.png, decoder.info);
  header.height = png_get_image_height(decoder.png, decoder.info);
  const bool interlaced = png_get_interlace_type(decoder.png, decoder.info) != PNG_INTERLACE_NONE;
  close(decoder);
  PLIMSOLL_TRY(check_image_size(image, header.width, header.height));
  header.library_bytes = kFixed + 3 * row_bytes(header.width);
  header.buffer_bytes = static_cast<Bytes>(kImageInput) + 4 * header.width * (interlaced ? header.height : 1);
  return header;
}

Status decode_png(const EncodedImage& image, int channels, ImageBuffer& buffer, PixelRows& rows) {
  PLIMSOLL_ASSIGN(const bool decoded, decode_plain_png(image, channels, buffer, rows));
  if (decoded) return {};
  const auto memory = std::span(buffer.memory);
  ImageInput input(image, memory.first(kImageInput));
  auto* const pixels = reinterpret_cast<uint8_t*>(memory.data() + kImageInput);
  const auto room = static_cast<int64_t>(memory.size() - kImageInput);
  Decoder decoder;
  if (!create(decoder, input, buffer.library_bytes)) return fail(failure(decoder, image));
  if (setjmp(png_jmpbuf(decoder.png)) != 0) {
    close(decoder);
    return fail(failure(decoder, image));
  }
  open(decoder);
  const int64_t width = png_get_image_width(decoder.png, decoder.info);
  const int64_t height = png_get_image_height(decoder.png, decoder.info);
  const bool interlaced = png_get_interlace_type(decoder.png, decoder.info) != PNG_INTERLACE_NONE;
  if (4 * width > room / (interlaced ? height : 1)) png_error(decoder.png, "the picture changed while it was read");
  const int passes = convert(decoder, channels);
  rows.begin(height, width);
  read_rows(decoder, passes, height, static_cast<size_t>(channels * width), pixels, rows);
  close(decoder);
  return {};
}

}  // namespace plimsoll::engine
