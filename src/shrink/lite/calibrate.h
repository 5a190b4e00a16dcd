// The ranges of a model's tensors over data, from which the scales of integers follow. The data are read twice: for the
// extremes, and for a histogram between them. Nothing of the data is kept.
#pragma once

#include <string_view>
#include <vector>

#include "shrink/lite/interpreter.h"

namespace plimsoll::engine::lite {

// Values below this stand for "may not be seen" in attention, and are no part of a range.
inline constexpr float kHiddenBelow = -1e8F;

enum class RangeMethod : uint8_t { kPercentile, kMinMax, kMse, kKl };

struct Range {
  float low = 0, high = 0;
};

class Calibrator {
 public:
  explicit Calibrator(const Program& program);

  static Bytes bytes(const Model& model);  // what it holds

  // First pass: looks at the tensors after a run. The program must keep its tensors.
  void see(const Buffers& buffers);
  // Second pass.
  void count(const Buffers& buffers);

  // `percent`: of the elements that lie inside, for kPercentile.
  Range range(int32_t tensor, RangeMethod method, double percent) const;
  Range extremes(int32_t tensor) const;
  // The mean of each channel (index of the last dimension).
  std::vector<double> means(int32_t tensor) const;
  int64_t samples() const { return samples_; }

 private:
  struct Seen {
    float low = 0, high = 0;
    bool any = false;
    std::vector<double> sums;  // per channel
    int64_t rows = 0;
    std::vector<uint32_t> histogram;  // empty until the second pass
  };
  const Model& model_;
  std::vector<Seen> seen_;
  int64_t samples_ = 0;
};

}  // namespace plimsoll::engine::lite
