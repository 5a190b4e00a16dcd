// Recipes for sums to scalars, and the scalars of a training step. Partial sums cover pieces whose size depends
// only on the shape. They are accumulated in double and added in order, so the result is the same for any number of
// threads.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "backends/common/elementwise.h"
#include "backends/cpu/parallel.h"
#include "backends/cpu/recipe.h"
#include "backends/cpu/simd/simd.h"

namespace plimsoll::engine::cpu {

namespace {

constexpr int64_t kPiece = 16384;  // elements per partial sum
constexpr int64_t kRowChunks = 32;

int64_t pieces_of(int64_t elements) {
  return (elements + kPiece - 1) / kPiece;
}

// Adds up sum(first, count) over all pieces.
template <typename F>
double sum_pieces(int threads, int64_t elements, double* partial, const F& sum) {
  const int64_t pieces = pieces_of(elements);
  parallel_items(threads, pieces,
                 [&](int64_t i, int) { partial[i] = sum(i * kPiece, std::min(kPiece, elements - i * kPiece)); });
  return std::accumulate(partial, partial + pieces, 0.0);
}

Recipe squared_norm(const Problem& p) {
  const int64_t n = p.in_shape(0).elements();
  const int threads = p.machine.threads;
  return own_recipe("squared_norm", 8 * pieces_of(n), p.machine.seconds(0, 1, p.traffic()), [=](const BoundNode& node) {
    return [=, x = input<const float>(node, 0), y = output<float>(node, 0),
            partial = static_cast<double*>(node.workspace)] {
      *y = static_cast<float>(sum_pieces(
          threads, n, partial, [&](int64_t at, int64_t count) { return simd().sum_of_squares(x + at, count); }));
    };
  });
}

Recipe penalty(const Problem& p) {
  const int64_t n = p.in_shape(0).elements();
  const int threads = p.machine.threads;
  const double l1 = p.attrs().real_or("l1", 0), l2 = p.attrs().real_or("l2", 0);
  return own_recipe("l1_l2_penalty", 8 * pieces_of(n), p.machine.seconds(0, 1, p.traffic()),
                    [=](const BoundNode& node) {
                      return [=, x = input<const float>(node, 0), y = output<float>(node, 0),
                              partial = static_cast<double*>(node.workspace)] {
                        *y = static_cast<float>(sum_pieces(threads, n, partial, [&](int64_t at, int64_t count) {
                          const double absolute = l1 == 0 ? 0 : simd().sum_of_magnitudes(x + at, count);
                          return l1 * absolute + (l2 == 0 ? 0 : l2 * simd().sum_of_squares(x + at, count));
                        }));
                      };
                    });
}

Recipe clip_factor(const Problem& p) {
  return own_recipe("clip_factor", 0, p.machine.seconds(0, 1, 0),
                    [limit = p.attrs().real("limit")](const BoundNode& node) {
                      return [=, x = input<const float>(node, 0), y = output<float>(node, 0)] {
                        const double norm = std::sqrt(static_cast<double>(*x));
                        *y = static_cast<float>(norm <= limit ? 1.0 : limit / norm);
                      };
                    });
}

// Numbers that are not finite have all bits of the exponent.
double halves_not_finite(DType dtype, const uint16_t* x, int64_t n) {
  const int exponent = dtype == DType::kFloat16 ? 0x7C00 : 0x7F80;
  int64_t bad = 0;
  for (int64_t k = 0; k < n; ++k) bad += (x[k] & exponent) == exponent ? 1 : 0;
  return static_cast<double>(bad);
}

Recipe count_not_finite(const Problem& p) {
  std::vector<int64_t> elements;
  std::vector<DType> dtypes;
  for (size_t i = 0; i < p.inputs(); ++i) {
    elements.push_back(p.in_shape(i).elements());
    dtypes.push_back(p.in_dtype(i));
  }
  const int64_t pieces = pieces_of(*std::max_element(elements.begin(), elements.end()));
  const int threads = p.machine.threads;
  return own_recipe("count_not_finite", 8 * pieces, p.machine.seconds(0, 1, p.traffic()), [=](const BoundNode& node) {
    return [=, inputs = std::vector<void*>(node.inputs.begin(), node.inputs.end()), y = output<float>(node, 0),
            partial = static_cast<double*>(node.workspace)] {
      double total = 0;
      for (size_t i = 0; i < inputs.size(); ++i) {
        total += sum_pieces(threads, elements[i], partial, [&](int64_t at, int64_t count) {
          if (is_half(dtypes[i]))
            return halves_not_finite(dtypes[i], static_cast<const uint16_t*>(inputs[i]) + at, count);
          const auto* x = static_cast<const float*>(inputs[i]);
          int64_t bad = 0;
          for (int64_t k = at; k < at + count; ++k) bad += std::fabs(x[k]) <= std::numeric_limits<float>::max() ? 0 : 1;
          return static_cast<double>(bad);
        });
      }
      *y = static_cast<float>(total);
    };
  });
}

Recipe loss_scale(const Problem& p) {
  return own_recipe("loss_scale", 0, p.machine.seconds(0, 1, 0),
                    [growth = p.attrs().integer("growth_steps")](const BoundNode& node) {
                      const auto* bad = input<const float>(node, 3);
                      return [=, scale = input<const float>(node, 0), steps = input<const int64_t>(node, 1),
                              skipped = input<const int64_t>(node, 2), new_scale = output<float>(node, 0),
                              new_steps = output<int64_t>(node, 1), new_skipped = output<int64_t>(node, 2)] {
                        const bool grows = *steps == growth - 1;
                        *new_skipped = *skipped + (*bad == 0 ? 0 : 1);
                        *new_scale = *bad != 0 ? *scale * 0.5F : grows ? *scale * 2.0F : *scale;
                        *new_steps = *bad != 0 || grows ? 0 : *steps + 1;
                      };
                    });
}

Recipe applied_updates(const Problem& p) {
  return own_recipe("applied_updates", 0, p.machine.seconds(0, 1, 0), [](const BoundNode& node) {
    return [tried = input<const int64_t>(node, 0), skipped = input<const int64_t>(node, 1),
            applied = output<int64_t>(node, 0)] { *applied = *tried - *skipped; };
  });
}

Recipe count_periods(const Problem& p) {
  return own_recipe("count_periods", 0, p.machine.seconds(0, 1, 0),
                    [period = p.attrs().integer("period")](const BoundNode& node) {
                      return [=, count = input<const int64_t>(node, 0), periods = output<int64_t>(node, 0),
                              pending = output<float>(node, 1)] {
                        const bool whole = *count % period == 0;
                        *pending = whole ? 0.0F : 1.0F;
                        *periods = *count / period + (whole ? 0 : 1);
                      };
                    });
}

Recipe scheduled_rate(const Problem& p) {
  return own_recipe("scheduled_rate", 0, p.machine.seconds(0, 1, 0), [](const BoundNode& node) {
    return [rate = input<const float>(node, 0), other = input<const float>(node, 1),
            skipped = input<const int64_t>(node, 2), known = input<const int64_t>(node, 3),
            y = output<float>(node, 0)] { *y = *skipped == *known ? *rate : *other; };
  });
}

Recipe weighted_sum(const Problem& p) {
  const int64_t n = p.in_shape(0).elements();
  const int threads = p.machine.threads;
  const bool weighted = p.attrs().flag("weighted");
  const int64_t shared = weighted ? n / p.in_shape(2).elements() : 1;  // rows per weight
  return own_recipe("weighted_sum", 8 * pieces_of(n), p.machine.seconds(0, 1, p.traffic()), [=](const BoundNode& node) {
    return [=, v = input<const float>(node, 0), scale = input<const float>(node, 1),
            weights = weighted ? input<const float>(node, 2) : nullptr, y = output<float>(node, 0),
            partial = static_cast<double*>(node.workspace)] {
      const double total = sum_pieces(threads, n, partial, [&](int64_t at, int64_t count) {
        if (weights == nullptr) return simd().sum(v + at, count);
        if (shared == 1) return simd().dot(v + at, weights + at, count);
        double sum = 0;
        for (int64_t i = at; i < at + count; ++i)
          sum += static_cast<double>(v[i]) * static_cast<double>(weights[i / shared]);
        return sum;
      });
      *y = static_cast<float>(total * static_cast<double>(*scale));
    };
  });
}

Recipe weighted_sum_grad(const Problem& p) {
  const int64_t n = p.out_shape(0).elements();
  const int threads = p.machine.threads;
  const bool weighted = p.attrs().flag("weighted");
  const int64_t shared = weighted ? n / p.in_shape(2).elements() : 1;
  return own_recipe("weighted_sum_grad", 0, p.machine.seconds(0, 1, p.traffic()), [=](const BoundNode& node) {
    return [=, total = input<const float>(node, 0), scale = input<const float>(node, 1),
            weights = weighted ? input<const float>(node, 2) : nullptr, dv = output<float>(node, 0)] {
      const float d = *total * *scale;
      parallel_ranges(threads, n, kPiece, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) dv[i] = weights == nullptr ? d : d * weights[i / shared];
      });
    };
  });
}

Recipe layer_norm_param_grad(const Problem& p) {
  const Shape& shape = p.in_shape(0);
  const int64_t k = shape.back(), rows = shape.elements() / k, chunks = std::min(rows, kRowChunks);
  const int threads = p.machine.threads;
  return own_recipe(
      "layer_norm_param_grad", 8 * chunks * 2 * k, p.machine.seconds(0, 1, p.traffic()), [=](const BoundNode& node) {
        return [=, dy = input<const float>(node, 0), x = input<const float>(node, 1),
                mean = input<const float>(node, 2), rstd = input<const float>(node, 3), dgamma = output<float>(node, 0),
                dbeta = output<float>(node, 1), partial = static_cast<double*>(node.workspace)] {
          parallel_items(threads, chunks, [&](int64_t chunk, int) {
            double* sums = partial + 2 * k * chunk;
            std::fill_n(sums, 2 * k, 0.0);
            const int64_t begin = rows * chunk / chunks, end = rows * (chunk + 1) / chunks;
            simd().layer_norm_param_grad(dy + begin * k, x + begin * k, mean + begin, rstd + begin, end - begin, k, k,
                                         sums, sums + k);
          });
          for (int64_t i = 0; i < k; ++i) {
            double g = 0, b = 0;
            for (int64_t chunk = 0; chunk < chunks; ++chunk) {
              g += partial[2 * k * chunk + i];
              b += partial[2 * k * chunk + k + i];
            }
            dgamma[i] = static_cast<float>(g);
            dbeta[i] = static_cast<float>(b);
          }
        };
      });
}

Recipe reduce_all(const Problem& p) {
  const int64_t n = p.in_shape(0).elements();
  const int threads = p.machine.threads;
  return own_recipe(
      "reduce_to:scalar", 8 * pieces_of(n), p.machine.seconds(0, 1, p.traffic()), [=](const BoundNode& node) {
        return [=, x = input<const float>(node, 0), y = output<float>(node, 0),
                partial = static_cast<double*>(node.workspace)] {
          *y = static_cast<float>(
              sum_pieces(threads, n, partial, [&](int64_t at, int64_t count) { return simd().sum(x + at, count); }));
        };
      });
}

}  // namespace

Result<Recipe> reduction_recipe(const Problem& p) {
  const std::string& op = p.node.op;
  if (op == "squared_norm") return squared_norm(p);
  if (op == "l1_l2_penalty") return penalty(p);
  if (op == "clip_factor") return clip_factor(p);
  if (op == "count_not_finite") return count_not_finite(p);
  if (op == "loss_scale") return loss_scale(p);
  if (op == "applied_updates") return applied_updates(p);
  if (op == "count_periods") return count_periods(p);
  if (op == "scheduled_rate") return scheduled_rate(p);
  if (op == "weighted_sum") return weighted_sum(p);
  if (op == "weighted_sum_grad") return weighted_sum_grad(p);
  if (op == "layer_norm_param_grad") return layer_norm_param_grad(p);
  const Shape &x = p.in_shape(0), &y = p.out_shape(0);
  if (y.elements() == 1) return reduce_all(p);
  if (reduces_to_channels(x, y)) return tile_recipe(p);
  return axes_recipe(p);
}

}  // namespace plimsoll::engine::cpu
