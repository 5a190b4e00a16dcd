// JPEG and PNG: the header, and the pixels of pictures whose decoding needs at most 64 MiB, resized as the data stage
// does.
#include "formats/image/image.h"

#include "formats/image/resize.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace plimsoll::engine;
  const fuzz::InputFile input({data, size});
  const auto file = File::open_read(input.path());
  if (!file) fuzz::found(to_text(file.error()));
  const EncodedImage image = EncodedImage::whole(*file);
  const auto header = read_image_header(image);
  fuzz::check_error(header);
  // A large picture takes longer than a fuzzer waits.
  if (!header || header->library_bytes + header->buffer_bytes > 64 * kMiB || header->width * header->height > (1 << 22))
    return 0;
  ImageBuffer buffer;
  buffer.fit(*header);
  for (const int channels : {1, 3, 4}) {
    BilinearRows rows(5, 7, channels);
    std::vector<float> pixels(static_cast<size_t>(rows.elements()));
    rows.write_to(pixels.data());
    const auto decoded = decode_image(image, channels, buffer, rows);
    fuzz::check_error(decoded);
    if (decoded && !rows.done()) fuzz::found("a picture without all of its rows");
  }
  return 0;
}
