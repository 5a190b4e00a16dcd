#include "formats/image/resize.h"

#include <emmintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace plimsoll::engine {
namespace {

// Four numbers are computed at once. Each of them gets the arithmetic of the scalar code, so the bits are the same.
constexpr int kLanes = 4;

__m128 load(const uint8_t* from) {
  int32_t bytes = 0;
  std::memcpy(&bytes, from, sizeof bytes);
  const __m128i zero = _mm_setzero_si128();
  return _mm_cvtepi32_ps(_mm_unpacklo_epi16(_mm_unpacklo_epi8(_mm_cvtsi32_si128(bytes), zero), zero));
}

void widen(const uint8_t* pixels, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(pixels[i]);
}

__m128 between(__m128 low, __m128 high, __m128 share) {
  return _mm_add_ps(low, _mm_mul_ps(_mm_sub_ps(high, low), share));
}

}  // namespace

BilinearRows::BilinearRows(int64_t height, int64_t width, int channels)
    : height_(height),
      width_(width),
      channels_(channels),
      columns_(static_cast<size_t>(width)),
      above_(static_cast<size_t>(width * channels + kLanes)),
      here_(above_.size()) {}

Bytes BilinearRows::bytes() const {
  return static_cast<Bytes>(columns_.size() * sizeof(Place) + (above_.size() + here_.size()) * sizeof(float));
}

BilinearRows::Place BilinearRows::place(int64_t at, int64_t source, int64_t size) {
  const float scale = static_cast<float>(source) / static_cast<float>(size);
  const float in = (static_cast<float>(at) + 0.5F) * scale - 0.5F, floor = std::floor(in);
  Place place;
  place.high = std::min(static_cast<int64_t>(std::ceil(in)), source - 1);
  place.low = std::min(std::max<int64_t>(static_cast<int64_t>(floor), 0), place.high);
  place.share = in - floor;
  return place;
}

void BilinearRows::begin(int64_t source_height, int64_t source_width) {
  for (int64_t x = 0; x < width_; ++x) {
    Place& column = columns_[static_cast<size_t>(x)];
    column = place(x, source_width, width_);
    column.low *= channels_;
    column.high *= channels_;
  }
  // Four bytes are read for each pixel. The last columns are those for which that would leave the row.
  const int64_t row_bytes = source_width * channels_;
  wide_columns_ = 0;
  while (wide_columns_ < width_ && columns_[static_cast<size_t>(wide_columns_)].high + kLanes <= row_bytes)
    ++wide_columns_;
  same_width_ = source_width == width_;
  same_size_ = same_width_ && source_height == height_;
  source_height_ = source_height;
  done_ = 0;
  next_ = place(0, source_height_, height_);
}

// Columns from `first` on, number by number.
void BilinearRows::stretch_end(const uint8_t* pixels, int64_t first) {
  float* to = here_.data() + first * channels_;
  for (int64_t x = first; x < width_; ++x) {
    const Place& column = columns_[static_cast<size_t>(x)];
    for (int c = 0; c < channels_; ++c) {
      const auto left = static_cast<float>(pixels[column.low + c]), right = static_cast<float>(pixels[column.high + c]);
      *to++ = left + (right - left) * column.share;
    }
  }
}

void BilinearRows::stretch(const uint8_t* pixels) {
  if (same_width_) return widen(pixels, width_ * channels_, here_.data());  // every share is 0
  if (channels_ < 3) return stretch_end(pixels, 0);
  // With three channels the fourth number is overwritten by the next column.
  float* to = here_.data();
  for (int64_t x = 0; x < wide_columns_; ++x, to += channels_) {
    const Place& column = columns_[static_cast<size_t>(x)];
    _mm_storeu_ps(to, between(load(pixels + column.low), load(pixels + column.high), _mm_set1_ps(column.share)));
  }
  stretch_end(pixels, wide_columns_);
}

void BilinearRows::emit(const float* top, const float* bottom, float share) {
  const int64_t count = width_ * channels_;
  float* const to = into_ + done_ * count;
  if (share == 0) {  // top + (bottom - top) * 0
    std::memcpy(to, top, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  const __m128 shares = _mm_set1_ps(share);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    _mm_storeu_ps(to + i, between(_mm_loadu_ps(top + i), _mm_loadu_ps(bottom + i), shares));
  for (; i < count; ++i) to[i] = top[i] + (bottom[i] - top[i]) * share;
}

void BilinearRows::row(int64_t y, const uint8_t* pixels) {
  if (done_ == height_ || y < next_.low) return;
  if (same_size_) {
    const int64_t count = width_ * channels_;
    return widen(pixels, count, into_ + done_++ * count);
  }
  std::swap(above_, here_);
  stretch(pixels);
  while (next_.high == y) {
    emit(next_.low == y ? here_.data() : above_.data(), here_.data(), next_.share);
    if (++done_ == height_) return;
    next_ = place(done_, source_height_, height_);
  }
}

}  // namespace plimsoll::engine
