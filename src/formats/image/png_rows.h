// The filters of PNG rows (PNG specification, chapter 9).
#pragma once

#include <cstdint>

namespace plimsoll::engine {

// Room before a row that is unfiltered: it holds zeros, the pixel left of the first one.
inline constexpr int kPngMargin = 16;

// Undoes filter `filter` (0 to 4) of a row of `bytes` bytes with `pixel` bytes per pixel (1 to 4). `above` is the row
// above it, unfiltered, or zeros. Both rows have kPngMargin zeros before them and kPngMargin bytes of any kind after
// them, which are read and written.
void undo_png_filter(int filter, int pixel, int64_t bytes, uint8_t* row, const uint8_t* above);

// Turns a row of pixels of `from` channels (grey, grey with opacity, RGB, RGB with opacity) into `to` channels. Opacity
// is dropped, or is 255.
void change_channels(int from, int to, int64_t width, const uint8_t* row, uint8_t* out);

}  // namespace plimsoll::engine
