// The sizes of resample and adaptive_max_pool along one dimension, and the workspace of their table of weights. Depends
// only on shapes and is shared by offer and binder.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "base/tensor.h"

namespace plimsoll::engine::cuda {

enum class ResampleMethod : int { kAverage, kBicubic, kLanczos3, kLanczos5 };

inline ResampleMethod resample_method(std::string_view name) {
  return name == "bicubic"    ? ResampleMethod::kBicubic
         : name == "lanczos3" ? ResampleMethod::kLanczos3
         : name == "lanczos5" ? ResampleMethod::kLanczos5
                              : ResampleMethod::kAverage;
}

// Returns whether the kernels can write the table of this method. The input windows of the others are unknown to them.
inline bool has_table(std::string_view method) {
  return method == "average" || method == "bicubic" || method == "lanczos3" || method == "lanczos5";
}

// Tensors [outer, input, inner] and [outer, output, inner]; the gradient computes the former from the latter.
struct ResampleLines {
  int64_t outer = 1, inner = 1;
  int input = 0, output = 0;
  int taps = 0;  // the most weights of an output position

  // The table: for each output position the first input position and the number of weights, then the weights.
  Bytes table_bytes() const { return static_cast<Bytes>(output) * (2 + taps) * 4; }
};

inline ResampleLines resample_lines(const Shape& input, const Shape& output, int64_t axis, ResampleMethod method) {
  ResampleLines l;
  for (int64_t d = 0; d < axis; ++d) l.outer *= input[static_cast<size_t>(d)];
  for (size_t d = static_cast<size_t>(axis) + 1; d < input.rank(); ++d) l.inner *= input[d];
  const int64_t in = input[static_cast<size_t>(axis)], out = output[static_cast<size_t>(axis)];
  const int64_t most = method == ResampleMethod::kBicubic    ? 4
                       : method == ResampleMethod::kLanczos3 ? 7
                       : method == ResampleMethod::kLanczos5 ? 11
                                                             : (in + out - 1) / out + 1;
  l.input = static_cast<int>(in);
  l.output = static_cast<int>(out);
  l.taps = static_cast<int>(std::min(most, in));
  return l;
}

}  // namespace plimsoll::engine::cuda
