// The first frame of a GIF, as tf.io.decode_image(expand_animations=False) gives it: RGB, the size of that frame, and
// black where it is transparent. GIF89a specification, appendix F: variable-length-code LZW.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "formats/image/image.h"

namespace plimsoll::engine {
namespace {

constexpr int kMostCodes = 4096;

// Reads single bytes, and knows where it is.
class Bytes8 {
 public:
  Bytes8(const EncodedImage& image, std::span<std::byte> buffer) : image_(image), input_(image, buffer) {}

  // Returns false at the end of the file.
  bool get(uint8_t& byte) {
    if (unread_.empty()) unread_ = input_.next();
    if (unread_.empty()) return false;
    byte = static_cast<uint8_t>(unread_.front());
    unread_ = unread_.subspan(1);
    return true;
  }
  bool get(std::span<uint8_t> bytes) {
    return std::all_of(bytes.begin(), bytes.end(), [&](uint8_t& byte) { return get(byte); });
  }
  bool skip_blocks() {
    for (uint8_t size = 0; get(size);) {
      if (size == 0) return true;
      for (uint8_t byte = 0; size > 0; --size)
        if (!get(byte)) return false;
    }
    return false;
  }
  Error bad(const std::string& what) const {
    if (!input_.failed()) return input_.failed().error();
    return bad_image(image_, "the GIF " + what,
                     image_.offset + input_.position() - static_cast<int64_t>(unread_.size()));
  }

 private:
  const EncodedImage& image_;
  ImageInput input_;
  std::span<const std::byte> unread_;
};

struct Frame {
  int64_t left = 0, top = 0, width = 0, height = 0;
  bool interlaced = false;
  int transparent = -1, colours = 0;
  std::array<std::array<uint8_t, 3>, 256> palette{};
};

int64_t number(const uint8_t* bytes) {
  return bytes[0] | bytes[1] << 8;
}

bool read_palette(Bytes8& in, uint8_t flags, Frame& frame) {
  frame.colours = 2 << (flags & 7);
  for (int i = 0; i < frame.colours; ++i)
    if (!in.get(frame.palette[static_cast<size_t>(i)])) return false;
  return true;
}

// Reads up to the pixels of the first frame.
Result<Frame> read_frame(Bytes8& in) {
  Frame frame;
  std::array<uint8_t, 13> screen{};
  if (!in.get(screen)) return fail(in.bad("is cut short"));
  if ((screen[10] & 0x80) != 0 && !read_palette(in, screen[10], frame)) return fail(in.bad("is cut short"));
  for (uint8_t kind = 0; in.get(kind);) {
    if (kind == '!') {
      uint8_t label = 0;
      std::array<uint8_t, 5> control{};
      if (!in.get(label)) break;
      if (label == 0xf9) {
        if (!in.get(control) || control[0] != 4) return fail(in.bad("has a damaged control block"));
        frame.transparent = (control[1] & 1) != 0 ? control[4] : -1;
        uint8_t end = 0;
        if (!in.get(end)) break;
        if (end != 0) return fail(in.bad("has a damaged control block"));
        continue;
      }
      if (!in.skip_blocks()) break;
    } else if (kind == ',') {
      std::array<uint8_t, 9> place{};
      if (!in.get(place)) break;
      frame.left = number(&place[0]);
      frame.top = number(&place[2]);
      frame.width = number(&place[4]);
      frame.height = number(&place[6]);
      frame.interlaced = (place[8] & 0x40) != 0;
      if ((place[8] & 0x80) != 0 && !read_palette(in, place[8], frame)) break;
      if (frame.colours == 0) return fail(in.bad("has no palette"));
      return frame;
    } else if (kind == ';') {
      return fail(in.bad("holds no picture"));
    } else {
      return fail(in.bad(fmt::format("has an unknown block {}", kind)));
    }
  }
  return fail(in.bad("is cut short"));
}

// Unpacks the pixels' palette indices, in the order of the file.
Status unpack(Bytes8& in, std::span<uint8_t> pixels) {
  uint8_t least = 0;
  if (!in.get(least)) return fail(in.bad("is cut short"));
  if (least < 1 || least > 8) return fail(in.bad(fmt::format("has codes of {} bits", least)));
  const int clear = 1 << least, stop = clear + 1;
  std::array<uint16_t, kMostCodes> before{};
  std::array<uint8_t, kMostCodes> last{};
  std::array<uint8_t, kMostCodes + 1> stack{};
  int width = least + 1, next = clear + 2, previous = -1;
  uint8_t first = 0;
  uint32_t bits = 0;
  int held = 0;
  uint8_t block = 0;
  for (size_t done = 0; done < pixels.size();) {
    while (held < width) {
      uint8_t byte = 0;
      if (block == 0 && (!in.get(block) || block == 0)) return fail(in.bad("has fewer pixels than it says"));
      if (!in.get(byte)) return fail(in.bad("is cut short"));
      --block;
      bits |= static_cast<uint32_t>(byte) << held;
      held += 8;
    }
    const int code = static_cast<int>(bits & ((1U << width) - 1));
    bits >>= width;
    held -= width;
    if (code == stop) return fail(in.bad("has fewer pixels than it says"));
    if (code == clear) {
      width = least + 1;
      next = clear + 2;
      previous = -1;
      continue;
    }
    if (code > next || (code == next && previous < 0) || (previous < 0 && code >= clear))
      return fail(in.bad(fmt::format("has a wrong code {}", code)));
    size_t height = 0;
    int at = code;
    if (code == next) {
      stack[height++] = first;
      at = previous;
    }
    for (; at >= clear; at = before[static_cast<size_t>(at)]) stack[height++] = last[static_cast<size_t>(at)];
    first = static_cast<uint8_t>(at);
    stack[height++] = first;
    if (previous >= 0 && next < kMostCodes) {
      before[static_cast<size_t>(next)] = static_cast<uint16_t>(previous);
      last[static_cast<size_t>(next)] = first;
      if (++next == 1 << width && width < 12) ++width;
    }
    previous = code;
    while (height > 0 && done < pixels.size()) pixels[done++] = stack[--height];
  }
  return {};
}

// The row of the file that holds row y: interlaced pictures store each eighth row first.
int64_t stored_row(const Frame& frame, int64_t y) {
  if (!frame.interlaced) return y;
  const int64_t eighths = (frame.height + 7) / 8, fourths = (frame.height + 3) / 8, halves = (frame.height + 1) / 4;
  if (y % 8 == 0) return y / 8;
  if (y % 8 == 4) return eighths + y / 8;
  if (y % 4 == 2) return eighths + fourths + y / 4;
  return eighths + fourths + halves + y / 2;
}

Bytes room(const Frame& frame) {
  return static_cast<Bytes>(kImageInput) + frame.width * frame.height + frame.width * 3;
}

}  // namespace

Result<ImageHeader> read_gif_header(const EncodedImage& image) {
  std::array<std::byte, 1024> buffer{};
  Bytes8 in(image, buffer);
  PLIMSOLL_ASSIGN(const Frame frame, read_frame(in));
  PLIMSOLL_TRY(check_image_size(image, frame.width, frame.height));
  ImageHeader header;
  header.kind = ImageKind::kGif;
  header.width = frame.width;
  header.height = frame.height;
  header.buffer_bytes = room(frame);
  return header;
}

Status decode_gif(const EncodedImage& image, int channels, ImageBuffer& buffer, PixelRows& rows) {
  if (channels != 3)
    return fail(bad_image(image, fmt::format("a GIF is no picture of {} channels; TensorFlow refuses it too", channels),
                          image.offset)
                    .remedy("convert it to PNG"));
  Bytes8 in(image, std::span(buffer.memory).first(kImageInput));
  PLIMSOLL_ASSIGN(const Frame frame, read_frame(in));
  PLIMSOLL_TRY(check_image_size(image, frame.width, frame.height));
  if (static_cast<Bytes>(buffer.memory.size()) < room(frame))
    return fail(ErrorCode::kInternal, image.label + ": no room to decode it in");
  auto* const indices = reinterpret_cast<uint8_t*>(buffer.memory.data() + kImageInput);
  uint8_t* const row = indices + frame.width * frame.height;
  PLIMSOLL_TRY(unpack(in, {indices, static_cast<size_t>(frame.width * frame.height)}));
  rows.begin(frame.height, frame.width);
  for (int64_t y = 0; y < frame.height; ++y) {
    std::memset(row, 0, static_cast<size_t>(frame.width * 3));
    // A frame that is moved keeps its own size here, so its last rows and columns are cut off.
    for (int64_t x = frame.left; y >= frame.top && x < frame.width; ++x) {
      const int index = indices[stored_row(frame, y - frame.top) * frame.width + x - frame.left];
      if (index == frame.transparent) continue;
      if (index >= frame.colours) return fail(in.bad(fmt::format("has a colour {} of {}", index, frame.colours)));
      std::copy_n(frame.palette[static_cast<size_t>(index)].begin(), 3, row + x * 3);
    }
    rows.row(y, row);
  }
  return {};
}

}  // namespace plimsoll::engine
