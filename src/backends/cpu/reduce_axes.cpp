// Recipes for reductions over any axes: sums, largest, smallest and product; arg_max and arg_min; cumsum and cumprod.
// Results are accumulated in double. A reduction to few results is cut into parts, which depend only on the shape and
// are combined in order, so the result is the same for any number of threads.
#include <algorithm>
#include <cmath>

#include "backends/cpu/move/walk.h"
#include "backends/cpu/parallel.h"
#include "backends/cpu/recipe.h"
#include "backends/cpu/simd/simd.h"

namespace plimsoll::engine::cpu {

namespace {

constexpr int64_t kGrain = 16384;  // elements worth a thread
constexpr int64_t kColumns = 256;  // columns that are accumulated together
constexpr int64_t kFewItems = 16;  // below this many results or blocks, the reduced elements are split too
constexpr int64_t kMostParts = 32;

ReduceKind kind_of(const std::string& op) {
  if (op == "reduce_max") return ReduceKind::kMax;
  if (op == "reduce_min") return ReduceKind::kMin;
  return op == "reduce_prod" ? ReduceKind::kProd : ReduceKind::kSum;
}

double start_of(ReduceKind kind) {
  if (kind == ReduceKind::kMax) return -INFINITY;
  if (kind == ReduceKind::kMin) return INFINITY;
  return kind == ReduceKind::kProd ? 1 : 0;
}

double combine(ReduceKind kind, double a, double b) {
  if (kind == ReduceKind::kMax) return b > a || std::isnan(b) ? b : a;
  if (kind == ReduceKind::kMin) return b < a || std::isnan(b) ? b : a;
  return kind == ReduceKind::kProd ? a * b : a + b;
}

int64_t parts_of(int64_t items, int64_t elements_per_item) {
  if (items >= kFewItems) return 1;
  return std::clamp<int64_t>(elements_per_item / kGrain, 1, kMostParts);
}

// results[i] = partial[0][i] combined with partial[1][i] and so on.
void combine_parts(int threads, ReduceKind kind, const double* partial, int64_t parts, int64_t count, float* results) {
  parallel_ranges(threads, count, kGrain / parts, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      double total = partial[i];
      for (int64_t part = 1; part < parts; ++part) total = combine(kind, total, partial[part * count + i]);
      results[i] = static_cast<float>(total);
    }
  });
}

// The innermost dimension is reduced: each result is made of runs of `width` neighbouring elements.
Recipe reduce_runs(const Problem& p, const ReducedAxes& axes) {
  const ReduceKind kind = kind_of(p.node.op);
  std::vector<StridedDim> reduced = axes.dims(true);
  const int64_t width = reduced.empty() ? 1 : reduced.back().extent;
  if (!reduced.empty()) reduced.pop_back();
  const WalkDims results(axes.dims(false)), runs(reduced);
  const int64_t count = axes.kept, total = axes.reduced, parts = parts_of(count, total);
  const int threads = p.machine.threads;
  return own_recipe(
      p.node.op + ":runs", parts > 1 ? 8 * parts * count : 0, p.machine.seconds(0, 1, p.traffic()),
      [=](const BoundNode& node) {
        return [=, x = input<const float>(node, 0), y = output<float>(node, 0),
                partial = static_cast<double*>(node.workspace)] {
          const auto one = [&](const float* from, int64_t begin, int64_t end) {
            double value = start_of(kind);
            Walk run(runs, begin / width);
            for (int64_t i = begin; i < end; run.next()) {
              const int64_t inside = i % width, length = std::min(width - inside, end - i);
              value = combine(kind, value, simd().reduce_run(kind, from + run.at() + inside, length));
              i += length;
            }
            return value;
          };
          parallel_ranges(threads, count * parts, 1 + kGrain * parts / total, [&](int64_t begin, int64_t end) {
            Walk result(results, begin / parts);
            for (int64_t i = begin; i < end; ++i) {
              const int64_t part = i % parts;
              const double value = one(x + result.at(), total * part / parts, total * (part + 1) / parts);
              if (parts > 1)
                partial[part * count + i / parts] = value;
              else
                y[i] = static_cast<float>(value);
              if (part + 1 == parts) result.next();
            }
          });
          if (parts > 1) combine_parts(threads, kind, partial, parts, count, y);
        };
      });
}

// The innermost dimension is kept: blocks of columns are accumulated row by row.
Recipe reduce_columns(const Problem& p, const ReducedAxes& axes) {
  const ReduceKind kind = kind_of(p.node.op);
  std::vector<StridedDim> kept = axes.dims(false), reduced = axes.dims(true);
  const int64_t width = kept.back().extent;
  kept.pop_back();
  const StridedDim rows = reduced.empty() ? StridedDim{1, 0} : reduced.back();
  if (!reduced.empty()) reduced.pop_back();
  const WalkDims outer(kept), groups(reduced);
  const int64_t blocks = (width + kColumns - 1) / kColumns, items = outer.elements() * blocks;
  const int64_t count = axes.kept, total = axes.reduced;
  const int64_t parts = std::min(parts_of(items, total * std::min(width, kColumns)), total);
  const int threads = p.machine.threads;
  return own_recipe(
      p.node.op + ":columns", parts > 1 ? 8 * parts * count : 0, p.machine.seconds(0, 1, p.traffic()),
      [=](const BoundNode& node) {
        return [=, x = input<const float>(node, 0), y = output<float>(node, 0),
                partial = static_cast<double*>(node.workspace)] {
          const auto accumulate = [&](const float* from, int64_t begin, int64_t end, int64_t columns, double* sums) {
            std::fill_n(sums, columns, start_of(kind));
            Walk group(groups, begin / rows.extent);
            for (int64_t i = begin; i < end; group.next()) {
              const int64_t inside = i % rows.extent, length = std::min(rows.extent - inside, end - i);
              simd().reduce_rows(kind, from + group.at() + inside * rows.stride, rows.stride, length, columns, sums);
              i += length;
            }
          };
          const int64_t grain = 1 + kGrain * parts / (total * std::min(width, kColumns));
          parallel_ranges(threads, items * parts, grain, [&](int64_t begin, int64_t end) {
            alignas(64) double sums[kColumns];
            for (int64_t i = begin; i < end; ++i) {
              const int64_t part = i % parts, item = i / parts;
              const int64_t column = item % blocks * kColumns, columns = std::min(kColumns, width - column);
              const Walk place(outer, item / blocks);
              const int64_t at = item / blocks * width + column;
              accumulate(x + place.at() + column, total * part / parts, total * (part + 1) / parts, columns, sums);
              if (parts > 1)
                std::copy_n(sums, columns, partial + part * count + at);
              else
                for (int64_t c = 0; c < columns; ++c) y[at + c] = static_cast<float>(sums[c]);
            }
          });
          if (parts > 1) combine_parts(threads, kind, partial, parts, count, y);
        };
      });
}

// Calls body(first element, elements): columns of an axis with `inner` elements behind it, some at a time.
template <typename Body>
void parallel_columns(int threads, const AroundAxis& x, const Body& body) {
  const int64_t blocks = (x.inner + kColumns - 1) / kColumns;
  parallel_ranges(threads, x.outer * blocks, 1 + kGrain / (x.size * std::min(x.inner, kColumns)),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i) {
                      const int64_t column = i % blocks * kColumns;
                      body(i / blocks, column, std::min(kColumns, x.inner - column));
                    }
                  });
}

Recipe arg(const Problem& p) {
  const AroundAxis x(p.in_shape(0), static_cast<size_t>(p.attrs().integer("axis")));
  const float sign = p.node.op == "arg_max" ? 1.0F : -1.0F;
  const int threads = p.machine.threads;
  return own_recipe(p.node.op, 0, p.machine.seconds(0, 1, p.traffic()), [=](const BoundNode& node) {
    return [=, from = input<const float>(node, 0), to = output<int32_t>(node, 0)] {
      parallel_columns(threads, x, [&](int64_t outer, int64_t column, int64_t columns) {
        simd().arg_extreme(sign, from + outer * x.size * x.inner + column, x.inner, x.size, columns,
                           to + outer * x.inner + column);
      });
    };
  });
}

Recipe cumulate(const Problem& p) {
  const AroundAxis x(p.in_shape(0), static_cast<size_t>(p.attrs().integer("axis")));
  const bool product = p.node.op == "cumprod", exclusive = p.attrs().flag("exclusive");
  const bool reverse = p.attrs().flag("reverse");
  const int threads = p.machine.threads;
  return own_recipe(p.node.op, 0, p.machine.seconds(0, 1, p.traffic()), [=](const BoundNode& node) {
    return [=, from = input<const float>(node, 0), to = output<float>(node, 0)] {
      parallel_columns(threads, x, [&](int64_t outer, int64_t column, int64_t columns) {
        alignas(64) double totals[kColumns];
        std::fill_n(totals, columns, product ? 1.0 : 0.0);
        for (int64_t k = 0; k < x.size; ++k) {
          const int64_t at = (outer * x.size + (reverse ? x.size - 1 - k : k)) * x.inner + column;
          for (int64_t c = 0; c < columns; ++c) {
            const auto value = static_cast<double>(from[at + c]);
            const double after = product ? totals[c] * value : totals[c] + value;
            to[at + c] = static_cast<float>(exclusive ? totals[c] : after);
            totals[c] = after;
          }
        }
      });
    };
  });
}

}  // namespace

Result<Recipe> axes_recipe(const Problem& p) {
  const std::string& op = p.node.op;
  if (op.starts_with("arg_")) return arg(p);
  if (op.starts_with("cum")) return cumulate(p);
  const ReducedAxes axes = reduced_axes(p.in_shape(0), p.out_shape(0));
  if (axes.groups.size() > kMostDims)
    return fail(ErrorCode::kUnsupported, op + ": too many dimensions that cannot be merged");
  return axes.groups.empty() || axes.groups.back().reduced ? reduce_runs(p, axes) : reduce_columns(p, axes);
}

}  // namespace plimsoll::engine::cpu
