// Products of rows of integers and of float32 numbers: the inner loops of the interpreter.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"

namespace plimsoll::engine::lite {

// So many products of a byte and an int8 cannot overflow an int32.
inline constexpr int64_t kMostProducts = 65000;

// Int8 weights [n, k], in the order that suits the machine. Sums are exact on every machine.
class IntegerWeights {
 public:
  // `weights` must outlive the object. `k` is at most kMostProducts.
  IntegerWeights(const int8_t* weights, int64_t n, int64_t k);

  // out[i * n + j] = sum over t of rows[i * k + t] * weights[j * k + t]
  void multiply(const uint8_t* rows, int64_t m, int32_t* out) const;
  Bytes bytes() const { return static_cast<Bytes>(packed_.size()); }  // that it holds itself

 private:
  const int8_t* weights_;
  int64_t n_, k_;
  std::vector<int8_t> packed_;  // [n / 16, k / 4, 16, 4] for processors with VNNI, else empty
};

// out[i * n + j] = bias[j] + sum over k of rows[i * k_size + k] * weights[k * n + j]. `bias` may be null.
void multiply_rows(const float* rows, int64_t m, const float* weights, const float* bias, int64_t n, int64_t k_size,
                   float* out);

// sums[c] += x[c] * w[c] for one tap of a depthwise convolution.
void multiply_add(const int16_t* x, const int16_t* w, int64_t n, int32_t* sums);
void multiply_add(const float* x, const float* w, int64_t n, float* sums);

}  // namespace plimsoll::engine::lite
