// Which input positions and weights make up an output position, when one dimension of a tensor is resampled. The CPU
// and the reference read these tables; the GPU computes the same ones (backends/cuda/move/resample.cu).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace plimsoll::engine {

// Output position i is the sum of weights[first[i] ...] * input[begin[i] ...].
struct ResampleTable {
  std::vector<int64_t> begin, first;  // `first` has one more entry, the number of weights
  std::vector<float> weights;

  int64_t outputs() const { return static_cast<int64_t>(begin.size()); }
  int64_t taps(int64_t output) const {
    return first[static_cast<size_t>(output) + 1] - first[static_cast<size_t>(output)];
  }
};

bool is_resample_method(std::string_view method);
// "average": windows of adaptive pooling. "bicubic", "lanczos3", "lanczos5": TensorFlow's, without antialiasing.
ResampleTable resample_table(std::string_view method, int64_t input, int64_t output);
// The same weights by input position: the gradient of position i is the sum over the outputs that read it.
ResampleTable transposed(const ResampleTable& table, int64_t input);

// The window of adaptive pooling: output position `at` covers `begin` to `end`.
struct AdaptiveWindow {
  int64_t begin, end;
};
AdaptiveWindow adaptive_window(int64_t at, int64_t input, int64_t output);

}  // namespace plimsoll::engine
