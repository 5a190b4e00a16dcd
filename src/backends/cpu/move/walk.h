// Steps through the elements of a strided view without dividing at each step. Holds no heap memory, because kernels do
// not allocate while they run.
#pragma once

#include <array>

#include "ops/strided.h"

namespace plimsoll::engine::cpu {

inline constexpr size_t kMostDims = 16;  // of a collapsed view

// A view as plain data of fixed size.
struct WalkDims {
  size_t rank = 0;
  std::array<int64_t, kMostDims> extent{}, stride{};

  WalkDims() = default;
  explicit WalkDims(const std::vector<StridedDim>& dims) : rank(dims.size()) {
    for (size_t d = 0; d < rank; ++d) {
      extent[d] = dims[d].extent;
      stride[d] = dims[d].stride;
    }
  }
  int64_t elements() const {
    int64_t n = 1;
    for (size_t d = 0; d < rank; ++d) n *= extent[d];
    return n;
  }
};

class Walk {
 public:
  Walk(const WalkDims& dims, int64_t first) : dims_(dims) {
    for (size_t d = dims_.rank; d-- > 0; first /= dims_.extent[d]) {
      index_[d] = first % dims_.extent[d];
      at_ += index_[d] * dims_.stride[d];
    }
  }
  int64_t at() const { return at_; }
  void next() {
    for (size_t d = dims_.rank; d-- > 0;) {
      at_ += dims_.stride[d];
      if (++index_[d] < dims_.extent[d]) return;
      at_ -= dims_.stride[d] * index_[d];
      index_[d] = 0;
    }
  }

 private:
  const WalkDims& dims_;
  std::array<int64_t, kMostDims> index_{};
  int64_t at_ = 0;
};

}  // namespace plimsoll::engine::cpu
