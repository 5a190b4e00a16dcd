#include "ops/resample.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace plimsoll::engine {
namespace {

// Divides by the sum, as TensorFlow does for positions near the border, where weights are missing.
void normalize(float* weights, int64_t count) {
  float sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += weights[i];
  if (std::abs(sum) < 1000.0F * std::numeric_limits<float>::min()) return;
  const float factor = 1.0F / sum;
  for (int64_t i = 0; i < count; ++i) weights[i] *= factor;
}

// resize_bicubic_op.cc of TensorFlow with half_pixel_centers: Keys's cubic (a = -0.5), whose argument is rounded to
// 1/1024, the resolution of its table.
float cubic_weight(float distance) {
  constexpr float kA = -0.5F;
  const float x = distance;
  if (x <= 1.0F) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  return ((kA * x - 5 * kA) * x + 8 * kA) * x - 4 * kA;
}

void add_cubic(ResampleTable& table, int64_t at, int64_t input, int64_t output) {
  constexpr float kSteps = 1024;
  const float scale = static_cast<float>(input) / static_cast<float>(output);
  const float place = (static_cast<float>(at) + 0.5F) * scale - 0.5F;
  const auto floor = static_cast<int64_t>(std::floor(place));
  const float delta = std::nearbyint((place - static_cast<float>(floor)) * kSteps) / kSteps;
  const float weights[4] = {cubic_weight(1 + delta), cubic_weight(delta), cubic_weight(1 - delta),
                            cubic_weight(2 - delta)};
  const int64_t begin = std::max<int64_t>(floor - 1, 0), end = std::min(floor + 3, input);
  table.begin.push_back(begin);
  const size_t from = table.weights.size();
  for (int64_t i = begin; i < end; ++i) table.weights.push_back(weights[i - (floor - 1)]);
  normalize(&table.weights[from], end - begin);
}

float lanczos_weight(float distance, float radius) {
  constexpr float kPi = 3.14159265359F;
  const float x = std::abs(distance);
  if (x > radius) return 0;
  if (x <= 1e-3F) return 1;
  return radius * std::sin(kPi * x) * std::sin(kPi * x / radius) / (kPi * kPi * x * x);
}

// A kernel of scale_and_translate_op.cc of TensorFlow.
struct ScaledKernel {
  float radius;
  float (*weight)(float distance, float radius);
};

float triangle_weight(float distance, float) {
  return std::max(0.0F, 1.0F - std::abs(distance));
}

float keys_weight(float distance, float) {
  const float x = std::abs(distance);
  if (x >= 2) return 0;
  if (x >= 1) return ((-0.5F * x + 2.5F) * x - 4.0F) * x + 2.0F;
  return ((1.5F * x - 2.5F) * x) * x + 1.0F;
}

ScaledKernel scaled_kernel(std::string_view method) {
  if (method.starts_with("bilinear")) return {1, triangle_weight};
  if (method.starts_with("bicubic")) return {2, keys_weight};
  return {method.starts_with("lanczos3") ? 3.0F : 5.0F, lanczos_weight};
}

// With antialiasing, the kernel is as much wider as the image gets smaller.
void add_scaled(ResampleTable& table, int64_t at, int64_t input, int64_t output, const ScaledKernel& kernel,
                bool antialias) {
  const float inverse = 1.0F / (static_cast<float>(output) / static_cast<float>(input));
  const float place = (static_cast<float>(at) + 0.5F) * inverse;
  const float wider = antialias ? std::max(inverse, 1.0F) : 1.0F, reach = kernel.radius * wider;
  const auto within = [&](float position) { return std::clamp<int64_t>(static_cast<int64_t>(position), 0, input - 1); };
  const int64_t begin = within(std::ceil(place - reach - 0.5F)), end = within(std::floor(place + reach - 0.5F)) + 1;
  table.begin.push_back(begin);
  const size_t from = table.weights.size();
  for (int64_t i = begin; i < end; ++i)
    table.weights.push_back(kernel.weight((static_cast<float>(i) + 0.5F - place) * (1.0F / wider), kernel.radius));
  normalize(&table.weights[from], end - begin);
}

// resize_bilinear_op.cc of TensorFlow with half_pixel_centers.
void add_bilinear(ResampleTable& table, int64_t at, int64_t input, int64_t output) {
  const float scale = static_cast<float>(input) / static_cast<float>(output);
  const float place = (static_cast<float>(at) + 0.5F) * scale - 0.5F;
  const float floor = std::floor(place), share = place - floor;
  const int64_t high = std::min(static_cast<int64_t>(std::ceil(place)), input - 1);
  const int64_t low = std::min(std::max<int64_t>(static_cast<int64_t>(floor), 0), high);
  table.begin.push_back(low);
  table.weights.push_back(low == high ? 1.0F : 1.0F - share);
  if (low != high) table.weights.push_back(share);
}

// resize_nearest_neighbor_op.cc of TensorFlow with half_pixel_centers.
void add_nearest(ResampleTable& table, int64_t at, int64_t input, int64_t output) {
  const float scale = static_cast<float>(input) / static_cast<float>(output);
  const auto place = static_cast<int64_t>(std::floor((static_cast<float>(at) + 0.5F) * scale));
  table.begin.push_back(std::clamp<int64_t>(place, 0, input - 1));
  table.weights.push_back(1.0F);
}

void add_average(ResampleTable& table, int64_t at, int64_t input, int64_t output) {
  const AdaptiveWindow window = adaptive_window(at, input, output);
  const int64_t count = window.end - window.begin;
  table.begin.push_back(window.begin);
  table.weights.insert(table.weights.end(), static_cast<size_t>(count), 1.0F / static_cast<float>(count));
}

}  // namespace

// Keras computes the bounds in float32, and has windows of two sizes.
AdaptiveWindow adaptive_window(int64_t at, int64_t input, int64_t output) {
  const auto in = static_cast<float>(input), out = static_cast<float>(output);
  const int64_t small = (input + output - 1) / output;
  const auto begin = std::min(static_cast<int64_t>(std::floor(static_cast<float>(at) * in / out)), input - 1);
  const auto end = std::min(static_cast<int64_t>(std::ceil(static_cast<float>(at + 1) * in / out)), input);
  return {begin, std::min(begin + (end - begin == small + 1 ? small + 1 : small), input)};
}

bool is_resample_method(std::string_view method) {
  constexpr std::string_view kMethods[] = {"average",
                                           "nearest",
                                           "bilinear",
                                           "bicubic",
                                           "lanczos3",
                                           "lanczos5",
                                           "bilinear_antialias",
                                           "bicubic_antialias",
                                           "lanczos3_antialias",
                                           "lanczos5_antialias"};
  return std::find(std::begin(kMethods), std::end(kMethods), method) != std::end(kMethods);
}

ResampleTable resample_table(std::string_view method, int64_t input, int64_t output) {
  ResampleTable table;
  const bool antialias = method.ends_with("_antialias");
  for (int64_t at = 0; at < output; ++at) {
    table.first.push_back(static_cast<int64_t>(table.weights.size()));
    if (method == "average") {
      add_average(table, at, input, output);
    } else if (method == "nearest") {
      add_nearest(table, at, input, output);
    } else if (method == "bilinear") {
      add_bilinear(table, at, input, output);
    } else if (method == "bicubic") {
      add_cubic(table, at, input, output);
    } else {
      add_scaled(table, at, input, output, scaled_kernel(method), antialias);
    }
  }
  table.first.push_back(static_cast<int64_t>(table.weights.size()));
  return table;
}

// The outputs that read an input position are consecutive, because the windows move to the right.
ResampleTable transposed(const ResampleTable& table, int64_t input) {
  ResampleTable result;
  for (int64_t at = 0, low = 0; at < input; ++at) {
    const auto end_of = [&](int64_t output) { return table.begin[static_cast<size_t>(output)] + table.taps(output); };
    while (low < table.outputs() && end_of(low) <= at) ++low;
    result.begin.push_back(low);
    result.first.push_back(static_cast<int64_t>(result.weights.size()));
    for (int64_t o = low; o < table.outputs() && table.begin[static_cast<size_t>(o)] <= at; ++o) {
      const int64_t tap = at - table.begin[static_cast<size_t>(o)];
      const bool reads = tap < table.taps(o);
      result.weights.push_back(reads ? table.weights[static_cast<size_t>(table.first[static_cast<size_t>(o)] + tap)]
                                     : 0.0F);
    }
  }
  result.first.push_back(static_cast<int64_t>(result.weights.size()));
  return result;
}

}  // namespace plimsoll::engine
