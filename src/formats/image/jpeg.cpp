// JPEG by libjpeg-turbo, with the settings of TensorFlow: fast DCT, smooth upsampling, and CMYK by its formula.
//
// libjpeg reports errors by longjmp, so no object with a destructor lives between setjmp and the calls.
#include <fmt/format.h>

#include <jpeglib.h>
#include <csetjmp>
#include <cstdio>  // jpeglib.h needs it

#include <algorithm>
#include <cstring>

#include "formats/image/image.h"
#include "formats/limits.h"

namespace plimsoll::engine {
namespace {

struct Decoder {
  jpeg_decompress_struct info;
  jpeg_error_mgr errors;
  jpeg_source_mgr source;
  jpeg_progress_mgr progress;
  jmp_buf after_error;
  ImageInput* input;
  char message[JMSG_LENGTH_MAX];

  int64_t position() const { return input->position() - static_cast<int64_t>(source.bytes_in_buffer); }
};

Decoder& decoder_of(j_common_ptr info) {
  return *static_cast<Decoder*>(info->client_data);
}

[[noreturn]] void on_error(j_common_ptr info) {
  Decoder& decoder = decoder_of(info);
  info->err->format_message(info, decoder.message);
  std::longjmp(decoder.after_error, 1);
}

[[noreturn]] void give_up(Decoder& decoder, const char* message) {
  std::snprintf(decoder.message, sizeof decoder.message, "%s", message);
  std::longjmp(decoder.after_error, 1);
}

boolean fill(j_decompress_ptr info) {
  Decoder& decoder = decoder_of(reinterpret_cast<j_common_ptr>(info));
  const auto bytes = decoder.input->next();
  if (bytes.empty()) give_up(decoder, "the JPEG is cut short");
  decoder.source.next_input_byte = reinterpret_cast<const JOCTET*>(bytes.data());
  decoder.source.bytes_in_buffer = bytes.size();
  return TRUE;
}

void skip(j_decompress_ptr info, long count) {
  Decoder& decoder = decoder_of(reinterpret_cast<j_common_ptr>(info));
  for (auto left = static_cast<size_t>(std::max(count, 0L)); left > 0;) {
    const size_t now = std::min(left, decoder.source.bytes_in_buffer);
    decoder.source.next_input_byte += now;
    decoder.source.bytes_in_buffer -= now;
    left -= now;
    if (left > 0) fill(info);
  }
}

// A small file can have thousands of scans over a large picture, each of which takes as long as a picture.
void watch(j_common_ptr info) {
  constexpr int kMostScans = 100;
  Decoder& decoder = decoder_of(info);
  if (decoder.info.input_scan_number > kMostScans) give_up(decoder, "the JPEG has more than 100 scans");
}

// Sets everything up and reads the header. The caller has called setjmp.
void open(Decoder& decoder) {
  jpeg_create_decompress(&decoder.info);
  decoder.info.client_data = &decoder;
  decoder.source.init_source = [](j_decompress_ptr) {};
  decoder.source.fill_input_buffer = fill;
  decoder.source.skip_input_data = skip;
  decoder.source.resync_to_restart = jpeg_resync_to_restart;
  decoder.source.term_source = [](j_decompress_ptr) {};
  decoder.info.src = &decoder.source;
  decoder.progress.progress_monitor = watch;
  decoder.info.progress = &decoder.progress;
  jpeg_read_header(&decoder.info, TRUE);
}

// Prepares the members that an error needs. Warnings about the data are ignored, as TensorFlow does.
void prepare(Decoder& decoder, ImageInput& input) {
  std::memset(&decoder, 0, sizeof decoder);
  decoder.input = &input;
  decoder.info.err = jpeg_std_error(&decoder.errors);
  decoder.info.client_data = &decoder;
  decoder.errors.error_exit = on_error;
  decoder.errors.output_message = [](j_common_ptr) {};
  decoder.errors.emit_message = [](j_common_ptr, int) {};
}

// Upper bound on what libjpeg allocates. Buffers of a few rows per component, and for several scans the coefficients of
// the whole picture, 64 of 16 bits per block.
Bytes library_bytes(jpeg_decompress_struct& info) {
  constexpr Bytes kFixed = 256 * kKiB, kRows = 64;
  const auto round_up = [](int64_t n, int64_t to) { return (n + to - 1) / to * to; };
  const int64_t step_x = int64_t{8} * info.max_h_samp_factor, step_y = int64_t{8} * info.max_v_samp_factor;
  const int64_t width = round_up(info.image_width, step_x), height = round_up(info.image_height, step_y);
  Bytes bytes = kFixed + width * info.num_components * kRows;
  if (jpeg_has_multiple_scans(&info))
    for (int i = 0; i < info.num_components; ++i)
      bytes += width / info.max_h_samp_factor * info.comp_info[i].h_samp_factor *
               (height / info.max_v_samp_factor * info.comp_info[i].v_samp_factor) * 2;
  return bytes;
}

Error failure(const Decoder& decoder, const EncodedImage& image) {
  if (!decoder.input->failed()) return decoder.input->failed().error();
  return bad_image(image, decoder.message, image.offset + decoder.position());
}

bool is_cmyk(const jpeg_decompress_struct& info) {
  return info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
}

// Turns a row of CMYK into RGB in place.
void to_rgb(uint8_t* row, int64_t width, bool inverted) {
  for (int64_t x = 0; x < width; ++x) {
    const uint8_t* from = row + 4 * x;
    const int k = from[3];
    for (int c = 0; c < 3; ++c)
      row[3 * x + c] = static_cast<uint8_t>(inverted ? k * from[c] / 255 : (255 - k) * (255 - from[c]) / 255);
  }
}

void read_rows(Decoder& decoder, int channels, Bytes most, uint8_t* row, PixelRows& rows) {
  auto& info = decoder.info;
  const bool cmyk = is_cmyk(info) && channels == 3;
  info.out_color_space = cmyk ? JCS_CMYK : channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  info.dct_method = JDCT_IFAST;
  info.mem->max_memory_to_use = static_cast<long>(most);
  jpeg_start_decompress(&info);
  rows.begin(info.output_height, info.output_width);
  while (info.output_scanline < info.output_height) {
    const int64_t y = info.output_scanline;
    JSAMPROW line = row;
    jpeg_read_scanlines(&info, &line, 1);
    if (cmyk) to_rgb(row, info.output_width, info.saw_Adobe_marker != 0);
    rows.row(y, row);
  }
}

}  // namespace

Result<ImageHeader> read_jpeg_header(const EncodedImage& image) {
  std::byte buffer[4096];
  ImageInput input(image, buffer);
  Decoder decoder;
  prepare(decoder, input);
  ImageHeader header;
  if (setjmp(decoder.after_error) != 0) {
    jpeg_destroy_decompress(&decoder.info);
    return fail(failure(decoder, image));
  }
  open(decoder);
  header.kind = ImageKind::kJpeg;
  header.width = decoder.info.image_width;
  header.height = decoder.info.image_height;
  header.library_bytes = library_bytes(decoder.info);
  header.buffer_bytes = static_cast<Bytes>(kImageInput) + 4 * header.width;
  jpeg_destroy_decompress(&decoder.info);
  PLIMSOLL_TRY(check_image_size(image, header.width, header.height));
  return header;
}

Status decode_jpeg(const EncodedImage& image, int channels, ImageBuffer& buffer, PixelRows& rows) {
  if (channels != 1 && channels != 3)
    return fail(bad_image(image, fmt::format("a JPEG has no {} channels", channels), image.offset));
  const auto memory = std::span(buffer.memory);
  ImageInput input(image, memory.first(kImageInput));
  auto* const row = reinterpret_cast<uint8_t*>(memory.data() + kImageInput);
  const size_t room = memory.size() - kImageInput;
  Decoder decoder;
  prepare(decoder, input);
  if (setjmp(decoder.after_error) != 0) {
    jpeg_destroy_decompress(&decoder.info);
    return fail(failure(decoder, image));
  }
  open(decoder);
  // The file may have changed since the room was made.
  if (size_t{4} * decoder.info.image_width > room || library_bytes(decoder.info) > buffer.library_bytes)
    give_up(decoder, "the picture changed while it was read");
  read_rows(decoder, channels, buffer.library_bytes, row, rows);
  jpeg_destroy_decompress(&decoder.info);
  return {};
}

}  // namespace plimsoll::engine
