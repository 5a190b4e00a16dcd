#include "formats/image/png_rows.h"

#include <emmintrin.h>

#include <cstring>

namespace plimsoll::engine {
namespace {

// A pixel of up to four bytes. With three, the fourth is garbage that is overwritten by the next pixel.
__m128i load_pixel(const uint8_t* from) {
  int32_t bytes = 0;
  std::memcpy(&bytes, from, sizeof bytes);
  return _mm_cvtsi32_si128(bytes);
}

void store_pixel(uint8_t* to, __m128i pixel, int bytes) {
  const int32_t value = _mm_cvtsi128_si32(pixel);
  std::memcpy(to, &value, static_cast<size_t>(bytes));
}

template <int kPixel>
void undo_sub(int64_t bytes, uint8_t* row) {
  __m128i left = _mm_setzero_si128();
  for (int64_t i = 0; i < bytes; i += kPixel) {
    left = _mm_add_epi8(left, load_pixel(row + i));
    store_pixel(row + i, left, kPixel);
  }
}

void undo_up(int64_t bytes, uint8_t* row, const uint8_t* above) {
  for (int64_t i = 0; i < bytes; i += 16) {
    auto* const at = reinterpret_cast<__m128i*>(row + i);
    const __m128i up = _mm_loadu_si128(reinterpret_cast<const __m128i*>(above + i));
    const __m128i sum = _mm_add_epi8(_mm_loadu_si128(at), up);
    if (i + 16 <= bytes) {
      _mm_storeu_si128(at, sum);
    } else {
      alignas(16) uint8_t last[16];
      _mm_store_si128(reinterpret_cast<__m128i*>(last), sum);
      std::memcpy(row + i, last, static_cast<size_t>(bytes - i));
    }
  }
}

template <int kPixel>
void undo_average(int64_t bytes, uint8_t* row, const uint8_t* above) {
  // The instruction rounds up, the filter rounds down.
  const __m128i one = _mm_set1_epi8(1);
  __m128i left = _mm_setzero_si128();
  for (int64_t i = 0; i < bytes; i += kPixel) {
    const __m128i up = load_pixel(above + i);
    const __m128i odd = _mm_and_si128(_mm_xor_si128(left, up), one);
    left = _mm_add_epi8(load_pixel(row + i), _mm_sub_epi8(_mm_avg_epu8(left, up), odd));
    store_pixel(row + i, left, kPixel);
  }
}

__m128i absolute(__m128i x) {
  return _mm_max_epi16(x, _mm_sub_epi16(_mm_setzero_si128(), x));
}

__m128i choose(__m128i mask, __m128i yes, __m128i no) {
  return _mm_or_si128(_mm_and_si128(mask, yes), _mm_andnot_si128(mask, no));
}

// The neighbour that is nearest to left + up - corner; of equal ones the first in the order left, up, corner.
template <int kPixel>
void undo_paeth(int64_t bytes, uint8_t* row, const uint8_t* above) {
  const __m128i zero = _mm_setzero_si128();
  __m128i left = zero, corner = zero;  // of 16 bits
  for (int64_t i = 0; i < bytes; i += kPixel) {
    const __m128i up = _mm_unpacklo_epi8(load_pixel(above + i), zero);
    const __m128i from_left = _mm_sub_epi16(up, corner), from_up = _mm_sub_epi16(left, corner);
    const __m128i a = absolute(from_left), b = absolute(from_up), c = absolute(_mm_add_epi16(from_left, from_up));
    const __m128i least = _mm_min_epi16(c, _mm_min_epi16(a, b));
    const __m128i nearest = choose(_mm_cmpeq_epi16(least, a), left, choose(_mm_cmpeq_epi16(least, b), up, corner));
    const __m128i pixel = _mm_add_epi8(load_pixel(row + i), _mm_packus_epi16(nearest, nearest));
    store_pixel(row + i, pixel, kPixel);
    corner = up;
    left = _mm_unpacklo_epi8(pixel, zero);
  }
}

template <int kPixel>
void undo(int filter, int64_t bytes, uint8_t* row, const uint8_t* above) {
  if (filter == 1) undo_sub<kPixel>(bytes, row);
  if (filter == 2) undo_up(bytes, row, above);
  if (filter == 3) undo_average<kPixel>(bytes, row, above);
  if (filter == 4) undo_paeth<kPixel>(bytes, row, above);
}

}  // namespace

void undo_png_filter(int filter, int pixel, int64_t bytes, uint8_t* row, const uint8_t* above) {
  if (pixel == 1) undo<1>(filter, bytes, row, above);
  if (pixel == 2) undo<2>(filter, bytes, row, above);
  if (pixel == 3) undo<3>(filter, bytes, row, above);
  if (pixel == 4) undo<4>(filter, bytes, row, above);
}

void change_channels(int from, int to, int64_t width, const uint8_t* row, uint8_t* out) {
  const bool gray = from < 3;
  for (int64_t x = 0; x < width; ++x, row += from, out += to)
    for (int c = 0; c < to; ++c) out[c] = c == 3 ? (from % 2 == 0 ? row[from - 1] : uint8_t{255}) : row[gray ? 0 : c];
}

}  // namespace plimsoll::engine
