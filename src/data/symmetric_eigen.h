// Eigenvalues and eigenvectors of a symmetric matrix in float64: Householder's reduction to a tridiagonal matrix, then
// implicit QL (Golub & Van Loan, "Matrix Computations", 8.3). All loops run over rows of memory.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"

namespace plimsoll::engine {

// Memory for a matrix of n x n, its own included.
constexpr Bytes symmetric_eigen_bytes(int64_t n) {
  return (2 * n * n + 4 * n) * static_cast<Bytes>(sizeof(double));
}

struct EigenPairs {
  std::vector<double> values;   // the largest `count`, falling
  std::vector<double> vectors;  // [count, n], each of length 1
};

// `matrix` is [n, n], row by row, and is destroyed. Returns false if the iteration does not converge, which happens
// only for numbers that are not finite.
bool largest_eigen_pairs(std::vector<double>& matrix, int64_t n, int64_t count, EigenPairs& found);

}  // namespace plimsoll::engine
