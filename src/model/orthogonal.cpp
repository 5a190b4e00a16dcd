// Gram-Schmidt in panels: threads share the vectors of a panel, and all of them go through the same few earlier
// vectors, which stay in the caches.
#include "model/orthogonal.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace plimsoll::engine {
namespace {

constexpr size_t kPanel = 32;   // vectors that are made together
constexpr size_t kEarlier = 8;  // earlier vectors that all of them go through before the next

// In several sums, so that an addition does not wait for the one before.
double dot(const double* a, const double* b, size_t length) {
  std::array<double, 8> sums{};
  size_t i = 0;
  for (; i + sums.size() <= length; i += sums.size())
    for (size_t k = 0; k < sums.size(); ++k) sums[k] += a[i + k] * b[i + k];
  double sum = 0;
  for (; i < length; ++i) sum += a[i] * b[i];
  for (const double part : sums) sum += part;
  return sum;
}

// Takes the parts along the orthonormal vectors [begin, end) out of `a`.
void take_out(double* a, const double* vectors, size_t begin, size_t end, size_t length) {
  for (size_t w = begin; w < end; ++w) {
    const double* b = vectors + w * length;
    const double along = dot(a, b, length);
    for (size_t i = 0; i < length; ++i) a[i] -= along * b[i];
  }
}

// Takes the parts along all earlier vectors out of those of a panel. If little is left of a vector, its rounding errors
// are a large part of it, and it goes through them again.
void take_out_earlier(double* vectors, size_t first, size_t last, size_t length) {
  constexpr double kLittle = 0.5;  // of the squared length
  std::array<double, kPanel> before{};
  std::array<bool, kPanel> goes{};
  for (size_t v = first; v < last; ++v) {
    before[v - first] = dot(vectors + v * length, vectors + v * length, length);
    goes[v - first] = true;
  }
  for (int pass = 0; pass < 2; ++pass) {
    for (size_t w = 0; w < first; w += kEarlier) {
#pragma omp parallel for schedule(static) if (length > 512)
      for (size_t v = first; v < last; ++v)
        if (goes[v - first]) take_out(vectors + v * length, vectors, w, std::min(first, w + kEarlier), length);
    }
    for (size_t v = first; v < last; ++v) {
      const double* a = vectors + v * length;
      goes[v - first] = dot(a, a, length) < kLittle * before[v - first];
    }
  }
}

}  // namespace

void make_orthonormal(std::span<double> vectors, size_t count, size_t length) {
  double* const all = vectors.data();
  for (size_t first = 0; first < count; first += kPanel) {
    const size_t last = std::min(count, first + kPanel);
    take_out_earlier(all, first, last, length);
    for (size_t v = first; v < last; ++v) {
      double* const a = all + v * length;
      for (int pass = 0; pass < 2; ++pass) take_out(a, all, first, v, length);
      const double norm = std::sqrt(dot(a, a, length));
      for (size_t i = 0; i < length; ++i) a[i] /= norm;
    }
  }
}

}  // namespace plimsoll::engine
