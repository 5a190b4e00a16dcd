// Resizes a picture while its rows arrive: bilinear without antialiasing, with the arithmetic of tf.image.resize.
#pragma once

#include <vector>

#include "formats/image/image.h"

namespace plimsoll::engine {

class BilinearRows final : public PixelRows {
 public:
  BilinearRows(int64_t height, int64_t width, int channels);

  Bytes bytes() const;
  int64_t elements() const { return height_ * width_ * channels_; }  // of a resized picture
  // The next picture goes to `into`: height x width x channels numbers from 0 to 255.
  void write_to(float* into) { into_ = into; }
  bool done() const { return done_ == height_; }
  void begin(int64_t source_height, int64_t source_width) override;
  void row(int64_t y, const uint8_t* pixels) override;

 private:
  // An output position between two positions of the source.
  struct Place {
    int64_t low = 0, high = 0;
    float share = 0;  // of `high`
  };
  static Place place(int64_t at, int64_t source, int64_t size);
  void stretch(const uint8_t* pixels);
  void stretch_end(const uint8_t* pixels, int64_t first);
  void emit(const float* top, const float* bottom, float share);

  const int64_t height_, width_;
  const int channels_;
  std::vector<Place> columns_;
  std::vector<float> above_, here_;  // the previous row that was needed, and this one
  int64_t source_height_ = 0;
  int64_t wide_columns_ = 0;  // columns that are computed as four numbers at once
  bool same_width_ = false, same_size_ = false;
  Place next_;        // of the output's next row
  int64_t done_ = 0;  // rows of the output
  float* into_ = nullptr;
};

}  // namespace plimsoll::engine
