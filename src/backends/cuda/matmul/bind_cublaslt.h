// y = op(a) op(b) + bias?, relu? on row-major matrices with cuBLASLt, at fixed addresses. The fastest engine that fits
// the workspace is measured the first time a product occurs, and remembered (engine_choices.h).
#pragma once

#include "backends/cuda/driver/context.h"
#include "backends/cuda/workspace.h"

namespace plimsoll::engine::cuda {

struct Product {
  int64_t m = 0, n = 0, k = 0;
  bool ta = false, tb = false, bias = false, relu = false;
  DType dtype = DType::kFloat32;   // type of a, b and bias
  DType result = DType::kFloat32;  // type of y: dtype, or f32
  int64_t count = 1;               // batch count: products of equal size whose matrices are consecutive in a, b and y
  bool adds = false;               // accumulate: y += instead of y =
  int64_t a_row = 0, b_row = 0, y_row = 0;  // elements from one stored row to the next; 0: rows are adjacent
  int most_timed = 12;                      // engines that are tried: the first use of one costs some 0.1 s
};

struct ProductAddresses {
  const void *a, *b, *bias;
  void* y;
};

// Returns kUnsupported if cuBLASLt has no engine within the workspace. The measurement overwrites y.
BoundKernel bind_product(Context& context, const Product& product, const ProductAddresses& at,
                         const Workspace& workspace);

}  // namespace plimsoll::engine::cuda
