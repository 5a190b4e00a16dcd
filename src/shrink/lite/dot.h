// Products of rows of integers and of float32 numbers: the inner loops of the interpreter.
#pragma once

#include <cstdint>

namespace plimsoll::engine::lite {

// out[i * n + j] = sum over k of rows[i * k_size + k] * weights[j * k_size + k], in int32. `rows` are numbers from 0 to
// 255. k_size is at most kMostProducts, so that no sum can overflow.
inline constexpr int64_t kMostProducts = 65000;
void multiply_rows(const uint8_t* rows, int64_t m, const int8_t* weights, int64_t n, int64_t k_size, int32_t* out);

// out[i * n + j] = bias[j] + sum over k of rows[i * k_size + k] * weights[k * n + j].
void multiply_rows(const float* rows, int64_t m, const float* weights, const float* bias, int64_t n, int64_t k_size,
                   float* out);

// sums[c] += x[c] * w[c] for one tap of a depthwise convolution.
void multiply_add(const int16_t* x, const int16_t* w, int64_t n, int32_t* sums);
void multiply_add(const float* x, const float* w, int64_t n, float* sums);

}  // namespace plimsoll::engine::lite
