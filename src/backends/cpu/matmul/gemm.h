// Matrix products on our own, the same bits for any number of threads. oneDNN's `gemm:jit`, all it has without AVX-512,
// allocates up to 1.4 MB while it runs (1024 x 1024 x 1024, two threads); its AVX-512 `brg` kernels allocate nothing
// and were 10 to 25 % faster on one thread than this product is.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace plimsoll::engine::cpu {

// c[m,n] (+)= a[m,k] b[k,n] (+ bias[n]) (relu); element (i, j) of a at a[i * a_row + j * a_column], likewise b; rows of
// c are contiguous.
struct Product {
  int64_t m = 0, n = 0, k = 0;
  const float* a = nullptr;
  int64_t a_row = 0, a_column = 0;
  const float* b = nullptr;
  int64_t b_row = 0, b_column = 0;
  float* c = nullptr;
  int64_t c_row = 0;
  const float* bias = nullptr;
  bool relu = false;
  bool accumulate = false;
};

// On the calling thread.
Bytes serial_workspace(const Product& product);
void multiply_serial(const Product& product, float* workspace);

// On all threads. Long sums are cut into slices fixed by the shape, so the result does not depend on the number of
// threads.
Bytes parallel_workspace(const Product& product, int threads);
void multiply_parallel(const Product& product, int threads, float* workspace);

}  // namespace plimsoll::engine::cpu
