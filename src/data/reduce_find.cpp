// Finds reductions: statistics in passes over a stream.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "data/reduce_passes.h"
#include "data/symmetric_eigen.h"

namespace plimsoll::engine {
namespace {

// upper triangle of c += transpose(x) * x, for rows x of n numbers.
void add_products(std::vector<double>& c, const double* x, int64_t rows, int64_t n) {
  constexpr int64_t kRows = 4, kColumns = 16;
#pragma omp parallel for schedule(dynamic)
  for (int64_t i = 0; i < n; i += kRows) {
    const int64_t height = std::min(kRows, n - i);
    for (int64_t j = i; j < n; j += kColumns) {
      const int64_t width = std::min(kColumns, n - j);
      double sums[kRows][kColumns] = {};
      if (height == kRows && width == kColumns) {
        for (int64_t r = 0; r < rows; ++r) {
          const double *left = x + r * n + i, *right = x + r * n + j;
          for (int64_t a = 0; a < kRows; ++a)
#pragma omp simd
            for (int64_t b = 0; b < kColumns; ++b) sums[a][b] += left[a] * right[b];
        }
      } else {
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t a = 0; a < height; ++a)
            for (int64_t b = 0; b < width; ++b) sums[a][b] += x[r * n + i + a] * x[r * n + j + b];
      }
      for (int64_t a = 0; a < height; ++a)
        for (int64_t b = 0; b < width; ++b) c[static_cast<size_t>((i + a) * n + j + b)] += sums[a][b];
    }
  }
}

// Makes the largest element of each component positive, as scikit-learn does.
void fix_signs(std::vector<double>& components, int64_t n) {
  for (auto row = components.begin(); row != components.end(); row += n) {
    const auto largest = std::max_element(row, row + n, [](double a, double b) { return std::fabs(a) < std::fabs(b); });
    if (*largest < 0) std::transform(row, row + n, row, std::negate<>());
  }
}

Error usage(std::string what) {
  return {ErrorCode::kUsage, std::move(what), {}, {}};
}

}  // namespace

Bytes pca_bytes(int64_t elements, int64_t components) {
  const Bytes block = number_bytes(elements, rows_at_once(elements));
  return symmetric_eigen_bytes(elements) + number_bytes(elements, components + 2) + block;
}

Bytes statistics_bytes(int64_t elements) {
  return number_bytes(elements, 4) + number_bytes(elements, rows_at_once(elements));
}

Result<Reduction> find_pca(ArrayStream& data, int64_t components, const Passes& progress) {
  const StreamedArray& x = data.arrays()[0];
  const int64_t n = x.elements();
  if (components > std::min(n, x.rows))
    return fail(usage(fmt::format("--pca {}: {} samples of {} features have at most {} components", components, x.rows,
                                  n, std::min(n, x.rows))));
  if (x.rows < 2) return fail(usage("--pca: one sample has no variance"));
  PassCounter counter(data, 2, progress);
  PLIMSOLL_ASSIGN(auto mean, means(data, false, n, counter, [](const NumberBlock& block) { return block.x; }));
  std::vector<double> covariance(static_cast<size_t>(n * n), 0.0), centred;
  PLIMSOLL_TRY(for_numbers(data, false, [&](const NumberBlock& block) -> Status {
    centred.assign(block.x, block.x + block.count * n);
    for (int64_t i = 0; i < block.count * n; ++i) centred[static_cast<size_t>(i)] -= mean[static_cast<size_t>(i % n)];
    add_products(covariance, centred.data(), block.count, n);
    return counter.add(block.count);
  }));
  Reduction found;
  found.kind = Reduction::Kind::kPca;
  found.input = x.sample;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = i; j < n; ++j) {
      double& upper = covariance[static_cast<size_t>(i * n + j)];
      upper /= static_cast<double>(x.rows - 1);
      covariance[static_cast<size_t>(j * n + i)] = upper;
    }
  for (int64_t i = 0; i < n; ++i) found.total_variance += covariance[static_cast<size_t>(i * n + i)];
  EigenPairs pairs;
  if (!largest_eigen_pairs(covariance, n, components, pairs))
    return fail(ErrorCode::kInternal, "the eigenvalues of the covariance did not converge");
  found.mean = std::move(mean);
  found.components = std::move(pairs.vectors);
  found.variances = std::move(pairs.values);
  for (double& variance : found.variances) variance = std::max(variance, 0.0);
  fix_signs(found.components, n);
  return found;
}

Result<Reduction> find_by_variance(ArrayStream& data, double threshold, const Passes& progress) {
  const StreamedArray& x = data.arrays()[0];
  const int64_t n = x.elements();
  PassCounter counter(data, 2, progress);
  PLIMSOLL_ASSIGN(const auto mean, means(data, false, n, counter, [](const NumberBlock& block) { return block.x; }));
  std::vector<double> squares(static_cast<size_t>(n), 0.0);
  PLIMSOLL_TRY(for_numbers(data, false, [&](const NumberBlock& block) -> Status {
    for (int64_t i = 0; i < block.count * n; ++i) {
      const double away = block.x[i] - mean[static_cast<size_t>(i % n)];
      squares[static_cast<size_t>(i % n)] += away * away;
    }
    return counter.add(block.count);
  }));
  Reduction found;
  found.kind = Reduction::Kind::kFeatures;
  found.input = x.sample;
  double largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double variance = squares[static_cast<size_t>(i)] / static_cast<double>(x.rows);
    largest = std::max(largest, variance);
    if (variance > threshold) found.features.push_back(i);
  }
  if (!found.features.empty()) return found;
  return fail(usage(fmt::format("--select-variance {}: no feature has a larger variance; the largest is {:.6g}",
                                threshold, largest)));
}

Result<Reduction> find_by_correlation(ArrayStream& data, int64_t count, const Passes& progress) {
  const StreamedArray& x = data.arrays()[0];
  if (data.arrays().size() < 2)
    return fail(usage("--select-correlation needs targets: --select-variance does without them"));
  const int64_t n = x.elements(), m = data.arrays()[1].elements();
  constexpr int64_t kMostTargets = 4096;
  if (m > kMostTargets)
    return fail(
        usage(fmt::format("--select-correlation: a target has {} numbers, at most {} are supported", m, kMostTargets)));
  if (count > n) return fail(usage(fmt::format("--select-correlation {}: there are only {} features", count, n)));
  PassCounter counter(data, 3, progress);
  PLIMSOLL_ASSIGN(const auto mean, means(data, false, n, counter, [](const NumberBlock& block) { return block.x; }));
  PLIMSOLL_ASSIGN(const auto target, means(data, true, m, counter, [](const NumberBlock& block) { return block.y; }));
  std::vector<double> xx(static_cast<size_t>(n), 0.0), yy(static_cast<size_t>(m), 0.0),
      xy(static_cast<size_t>(n * m), 0.0);
  PLIMSOLL_TRY(for_numbers(data, true, [&](const NumberBlock& block) -> Status {
    for (int64_t r = 0; r < block.count; ++r) {
      for (int64_t j = 0; j < m; ++j) {
        const double away = block.y[r * m + j] - target[static_cast<size_t>(j)];
        yy[static_cast<size_t>(j)] += away * away;
        for (int64_t i = 0; i < n; ++i)
          xy[static_cast<size_t>(j * n + i)] += away * (block.x[r * n + i] - mean[static_cast<size_t>(i)]);
      }
      for (int64_t i = 0; i < n; ++i) {
        const double away = block.x[r * n + i] - mean[static_cast<size_t>(i)];
        xx[static_cast<size_t>(i)] += away * away;
      }
    }
    return counter.add(block.count);
  }));
  std::vector<double> score(static_cast<size_t>(n), 0.0);
  for (int64_t j = 0; j < m; ++j)
    for (int64_t i = 0; i < n; ++i) {
      const double scale = std::sqrt(xx[static_cast<size_t>(i)] * yy[static_cast<size_t>(j)]);
      if (scale > 0)
        score[static_cast<size_t>(i)] =
            std::max(score[static_cast<size_t>(i)], std::fabs(xy[static_cast<size_t>(j * n + i)]) / scale);
    }
  Reduction found;
  found.kind = Reduction::Kind::kFeatures;
  found.input = x.sample;
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return score[static_cast<size_t>(a)] > score[static_cast<size_t>(b)]; });
  found.features.assign(order.begin(), order.begin() + count);
  std::sort(found.features.begin(), found.features.end());
  return found;
}

Result<Reduction> find_resolution(const ArrayStream& data, std::array<int64_t, 2> size) {
  const StreamedArray& x = data.arrays()[0];
  if (x.sample.size() != 2 && x.sample.size() != 3)
    return fail(Error{ErrorCode::kDataShape,
                      fmt::format("--resolution: a sample has the shape {}; pictures have a height, a width, and "
                                  "perhaps channels",
                                  dims_text(x.sample)),
                      {},
                      {}});
  Reduction found;
  found.kind = Reduction::Kind::kResolution;
  found.input = x.sample;
  found.resolution = size;
  return found;
}

}  // namespace plimsoll::engine
