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

// scale_and_translate_op.cc of TensorFlow.
float lanczos_weight(float distance, float radius) {
  constexpr float kPi = 3.14159265359F;
  const float x = std::abs(distance);
  if (x > radius) return 0;
  if (x <= 1e-3F) return 1;
  return radius * std::sin(kPi * x) * std::sin(kPi * x / radius) / (kPi * kPi * x * x);
}

void add_lanczos(ResampleTable& table, int64_t at, int64_t input, int64_t output, float radius) {
  const float inverse = 1.0F / (static_cast<float>(output) / static_cast<float>(input));
  const float place = (static_cast<float>(at) + 0.5F) * inverse;
  const auto within = [&](float position) { return std::clamp<int64_t>(static_cast<int64_t>(position), 0, input - 1); };
  const int64_t begin = within(std::ceil(place - radius - 0.5F)), end = within(std::floor(place + radius - 0.5F)) + 1;
  table.begin.push_back(begin);
  const size_t from = table.weights.size();
  for (int64_t i = begin; i < end; ++i)
    table.weights.push_back(lanczos_weight(static_cast<float>(i) + 0.5F - place, radius));
  normalize(&table.weights[from], end - begin);
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
  return method == "average" || method == "bicubic" || method == "lanczos3" || method == "lanczos5";
}

ResampleTable resample_table(std::string_view method, int64_t input, int64_t output) {
  ResampleTable table;
  for (int64_t at = 0; at < output; ++at) {
    table.first.push_back(static_cast<int64_t>(table.weights.size()));
    if (method == "average") {
      const AdaptiveWindow window = adaptive_window(at, input, output);
      const int64_t count = window.end - window.begin;
      table.begin.push_back(window.begin);
      table.weights.insert(table.weights.end(), static_cast<size_t>(count), 1.0F / static_cast<float>(count));
    } else if (method == "bicubic") {
      add_cubic(table, at, input, output);
    } else {
      add_lanczos(table, at, input, output, method == "lanczos3" ? 3 : 5);
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
