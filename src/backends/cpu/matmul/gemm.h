// Our own GEMM. Its results have the same bits for any number of threads. oneDNN's `gemm:jit`, the only kernel it has
// without AVX-512, allocates up to 1.4 MB while it runs (1024 x 1024 x 1024, two threads). oneDNN's AVX-512 `brg`
// kernels allocate nothing and were 10 to 25 % faster than this GEMM on one thread.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace plimsoll::engine::cpu {

// c[m,n] (+)= a[m,k] b[k,n] (+ bias[n]) (relu). Element (i, j) of a is at a[i * a_row + j * a_column], likewise for b.
// Each row of c is contiguous.
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

// Runs on the calling thread.
Bytes serial_workspace(const Product& product);
void multiply_serial(const Product& product, float* workspace);

// Runs on all threads. A long k dimension is split into slices that depend only on the shape, so the result does not
// depend on the number of threads.
Bytes parallel_workspace(const Product& product, int threads);
void multiply_parallel(const Product& product, int threads, float* workspace);

}  // namespace plimsoll::engine::cpu
