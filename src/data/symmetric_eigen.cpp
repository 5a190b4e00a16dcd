#include "data/symmetric_eigen.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace plimsoll::engine {
namespace {

double dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// The tridiagonal matrix, and the scales of the reflections whose vectors stay in the rows of the matrix.
struct Tridiagonal {
  std::vector<double> diagonal, beside, scale;
};

Tridiagonal reduce(std::vector<double>& a, int64_t n) {
  Tridiagonal t;
  t.diagonal.resize(static_cast<size_t>(n));
  t.beside.resize(static_cast<size_t>(n));
  t.scale.resize(static_cast<size_t>(n));
  std::vector<double> p(static_cast<size_t>(n));
  for (int64_t k = 0; k + 1 < n; ++k) {
    const int64_t m = n - k - 1;
    double* v = a.data() + k * n + k + 1;  // column k below the diagonal, which is also row k
    t.diagonal[static_cast<size_t>(k)] = v[-1];
    const double norm = std::sqrt(dot(v, v, m));
    if (norm == 0 || m == 1) {
      t.beside[static_cast<size_t>(k)] = v[0];
      continue;
    }
    const double alpha = v[0] > 0 ? -norm : norm;
    t.beside[static_cast<size_t>(k)] = alpha;
    v[0] -= alpha;
    const double beta = 2 / dot(v, v, m);
    t.scale[static_cast<size_t>(k)] = beta;
    const auto row = [&](int64_t i) { return a.data() + (k + 1 + i) * n + k + 1; };
#pragma omp parallel for schedule(static) if (m > 128)
    for (int64_t i = 0; i < m; ++i) p[static_cast<size_t>(i)] = beta * dot(row(i), v, m);
    const double half = beta / 2 * dot(p.data(), v, m);
    for (int64_t i = 0; i < m; ++i) p[static_cast<size_t>(i)] -= half * v[i];
#pragma omp parallel for schedule(static) if (m > 128)
    for (int64_t i = 0; i < m; ++i) {
      double* to = row(i);
      const double vi = v[i], pi = p[static_cast<size_t>(i)];
#pragma omp simd
      for (int64_t j = 0; j < m; ++j) to[j] -= vi * p[static_cast<size_t>(j)] + pi * v[j];
    }
  }
  t.diagonal[static_cast<size_t>(n - 1)] = a[static_cast<size_t>(n * n - 1)];
  return t;
}

// Diagonalises t by rotations, which also turn the rows of z. z begins as the identity, so its rows become the
// eigenvectors of the tridiagonal matrix.
bool diagonalize(Tridiagonal& t, std::vector<double>& z, int64_t n) {
  constexpr int kMostSweeps = 60;
  auto &d = t.diagonal, &e = t.beside;
  e[static_cast<size_t>(n - 1)] = 0;
  // What is below the rounding of the largest elements counts as zero: without this, a matrix of low rank never ends.
  double scale = 0;
  for (int64_t i = 0; i < n; ++i)
    scale = std::max(scale, std::fabs(d[static_cast<size_t>(i)]) + std::fabs(e[static_cast<size_t>(i)]));
  for (int64_t l = 0; l < n; ++l) {
    for (int sweep = 0;; ++sweep) {
      int64_t m = l;
      for (; m + 1 < n; ++m) {
        if (std::fabs(e[static_cast<size_t>(m)]) <= 0x1p-53 * scale) break;
      }
      if (m == l) break;
      if (sweep == kMostSweeps) return false;
      double g = (d[static_cast<size_t>(l + 1)] - d[static_cast<size_t>(l)]) / (2 * e[static_cast<size_t>(l)]);
      double r = std::hypot(g, 1);
      g = d[static_cast<size_t>(m)] - d[static_cast<size_t>(l)] + e[static_cast<size_t>(l)] / (g + std::copysign(r, g));
      double s = 1, c = 1, p = 0;
      int64_t i = m - 1;
      for (; i >= l; --i) {
        const double f = s * e[static_cast<size_t>(i)], b = c * e[static_cast<size_t>(i)];
        r = std::hypot(f, g);
        e[static_cast<size_t>(i + 1)] = r;
        if (r == 0) {  // an underflow: start again
          d[static_cast<size_t>(i + 1)] -= p;
          e[static_cast<size_t>(m)] = 0;
          break;
        }
        s = f / r;
        c = g / r;
        g = d[static_cast<size_t>(i + 1)] - p;
        r = (d[static_cast<size_t>(i)] - g) * s + 2 * c * b;
        p = s * r;
        d[static_cast<size_t>(i + 1)] = g + p;
        g = c * r - b;
        double *low = z.data() + i * n, *high = low + n;
#pragma omp simd
        for (int64_t k = 0; k < n; ++k) {
          const double h = high[k];
          high[k] = s * low[k] + c * h;
          low[k] = c * low[k] - s * h;
        }
      }
      if (r == 0 && i >= l) continue;
      d[static_cast<size_t>(l)] -= p;
      e[static_cast<size_t>(l)] = g;
      e[static_cast<size_t>(m)] = 0;
    }
  }
  return true;
}

}  // namespace

bool largest_eigen_pairs(std::vector<double>& matrix, int64_t n, int64_t count, EigenPairs& found) {
  Tridiagonal t = reduce(matrix, n);
  std::vector<double> z(static_cast<size_t>(n * n), 0.0);
  for (int64_t i = 0; i < n; ++i) z[static_cast<size_t>(i * n + i)] = 1;
  if (!diagonalize(t, z, n)) return false;
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return t.diagonal[static_cast<size_t>(a)] > t.diagonal[static_cast<size_t>(b)];
  });
  found.values.clear();
  found.vectors.resize(static_cast<size_t>(count * n));
  for (int64_t c = 0; c < count; ++c) {
    const int64_t from = order[static_cast<size_t>(c)];
    found.values.push_back(t.diagonal[static_cast<size_t>(from)]);
    double* vector = found.vectors.data() + c * n;
    std::copy_n(z.data() + from * n, n, vector);
    for (int64_t k = n - 2; k >= 0; --k) {
      const double* v = matrix.data() + k * n + k + 1;
      const int64_t m = n - k - 1;
      const double times = t.scale[static_cast<size_t>(k)] * dot(v, vector + k + 1, m);
      for (int64_t i = 0; i < m; ++i) vector[k + 1 + i] -= times * v[i];
    }
  }
  return true;
}

}  // namespace plimsoll::engine
