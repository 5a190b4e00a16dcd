// Where affine_image reads an image: the rules of TensorFlow's ImageProjectiveTransformV3, which Keras's random
// rotations, zooms, translations and shears call.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>

#ifdef __CUDACC__
#define PLIMSOLL_HOST_DEVICE __host__ __device__
#else
#define PLIMSOLL_HOST_DEVICE
#endif

namespace plimsoll::engine {

// What lies outside the image. kReflect repeats the border pixel: dcba|abcd|dcba.
enum class FillMode : int { kConstant, kReflect, kWrap, kNearest };

constexpr std::optional<FillMode> fill_mode(std::string_view name) {
  if (name == "constant") return FillMode::kConstant;
  if (name == "reflect") return FillMode::kReflect;
  if (name == "wrap") return FillMode::kWrap;
  if (name == "nearest") return FillMode::kNearest;
  return std::nullopt;
}

// A coordinate moved into an image of `size` pixels. kConstant leaves it where it is. Numbers that are not finite or
// too large for a pixel's index count as far outside.
template <typename T>
PLIMSOLL_HOST_DEVICE T placed_inside(FillMode mode, T at, int64_t size) {
  constexpr T kFar = T(1 << 30);
  if (!(at > -kFar)) at = -kFar;
  if (at > kFar) at = kFar;
  if (mode == FillMode::kConstant) return at;
  const T last = T(size - 1);
  if (mode == FillMode::kReflect && size > 1) {
    const int64_t period = 2 * size;
    if (at < 0) {
      at = T(period * static_cast<int64_t>(-at / T(period))) + at;
      at = at < T(-size) ? at + T(period) : -at - 1;
    } else if (at > last) {
      at -= T(period * static_cast<int64_t>(at / T(period)));
      if (at >= T(size)) at = T(period) - at - 1;
    }
  } else if (mode == FillMode::kWrap && size > 1) {
    if (at < 0)
      at += T(size * (static_cast<int64_t>(-at / last) + 1));
    else if (at > last)
      at -= T(size * static_cast<int64_t>(at / last));
  }
  return at < 0 ? T(0) : at > last ? last : at;
}

// The pixels that make one pixel of the result, and their weights. A pixel of -1 lies outside: it has the fill value.
template <typename T>
struct PixelTaps {
  int64_t pixel[4];
  T weight[4];
  int count;
};

// `to_source`: the numbers a0, a1, a2, b0, b1, b2 with which output pixel (x, y) reads the input at
// (a0 x + a1 y + a2, b0 x + b1 y + b2).
template <typename T>
PLIMSOLL_HOST_DEVICE PixelTaps<T> pixel_taps(const T* to_source, int64_t x, int64_t y, int64_t height, int64_t width,
                                             FillMode mode, bool nearest) {
  const T* a = to_source;
  const T column = placed_inside(mode, a[0] * T(x) + a[1] * T(y) + a[2], width);
  const T row = placed_inside(mode, a[3] * T(x) + a[4] * T(y) + a[5], height);
  const auto pixel = [=](int64_t r, int64_t c) -> int64_t {
    return r >= 0 && r < height && c >= 0 && c < width ? r * width + c : -1;
  };
  PixelTaps<T> taps{};
  if (nearest) {
    taps.count = 1;
    taps.pixel[0] = pixel(static_cast<int64_t>(round(row)), static_cast<int64_t>(round(column)));
    taps.weight[0] = T(1);
    return taps;
  }
  const T left = floor(column), top = floor(row);
  const auto c = static_cast<int64_t>(left), r = static_cast<int64_t>(top);
  const T right_share = column - left, left_share = left + 1 - column, lower = row - top, upper = top + 1 - row;
  taps.count = 4;
  taps.pixel[0] = pixel(r, c);
  taps.weight[0] = upper * left_share;
  taps.pixel[1] = pixel(r, c + 1);
  taps.weight[1] = upper * right_share;
  taps.pixel[2] = pixel(r + 1, c);
  taps.weight[2] = lower * left_share;
  taps.pixel[3] = pixel(r + 1, c + 1);
  taps.weight[3] = lower * right_share;
  return taps;
}

}  // namespace plimsoll::engine

#undef PLIMSOLL_HOST_DEVICE
