#include "formats/image/resize.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace plimsoll::engine {

BilinearRows::BilinearRows(int64_t height, int64_t width, int channels)
    : height_(height),
      width_(width),
      channels_(channels),
      columns_(static_cast<size_t>(width)),
      above_(static_cast<size_t>(width * channels)),
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
  source_height_ = source_height;
  done_ = 0;
}

void BilinearRows::stretch(const uint8_t* pixels) {
  float* to = here_.data();
  for (const Place& column : columns_)
    for (int c = 0; c < channels_; ++c) {
      const auto left = static_cast<float>(pixels[column.low + c]), right = static_cast<float>(pixels[column.high + c]);
      *to++ = left + (right - left) * column.share;
    }
}

void BilinearRows::emit(const float* top, const float* bottom, float share) {
  const size_t count = here_.size();
  float* const to = into_ + done_ * static_cast<int64_t>(count);
  for (size_t i = 0; i < count; ++i) to[i] = top[i] + (bottom[i] - top[i]) * share;
}

void BilinearRows::row(int64_t y, const uint8_t* pixels) {
  if (done_ == height_) return;
  Place next = place(done_, source_height_, height_);
  if (y < next.low) return;
  std::swap(above_, here_);
  stretch(pixels);
  while (next.high == y) {
    emit(next.low == y ? here_.data() : above_.data(), here_.data(), next.share);
    if (++done_ == height_) return;
    next = place(done_, source_height_, height_);
  }
}

}  // namespace plimsoll::engine
