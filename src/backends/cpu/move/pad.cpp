// Recipes for pad and pad_grad. Trailing dimensions without padding are one run of elements; the innermost padded axis
// and that run are a row, which is copied (or added) in one piece between its ends.
#include <algorithm>

#include "backends/cpu/move/walk.h"
#include "backends/cpu/parallel.h"
#include "backends/cpu/recipe.h"

namespace plimsoll::engine::cpu {

namespace {

constexpr Bytes kGrainBytes = 64 * kKiB;

struct PaddedRows {
  // The axes before the row: extents of x, of y, and for each index of y the index of x (-1: the constant).
  std::vector<int64_t> x, y;
  std::vector<std::vector<int64_t>> sources;
  // For each index of x, the indices of y that show it.
  std::vector<std::vector<std::vector<int64_t>>> places;
  // The row: `extent` runs of `inner` elements, with `before` and `after` more of them in y.
  int64_t inner = 1, extent = 1, before = 0, after = 0;
  std::vector<int64_t> ends;  // sources of the row's axis

  int64_t x_width() const { return extent * inner; }
  int64_t y_width() const { return (before + extent + after) * inner; }
};

PaddedRows rows_of(const Shape& x, const Attrs& attrs) {
  const auto& pads = attrs.list("pads");
  PaddedRows rows;
  size_t axis = x.rank();
  while (axis > 0 && pads[2 * axis - 1] == 0 && pads[2 * axis - 2] == 0) rows.inner *= x[--axis];
  const auto sources = [&](size_t d) { return padded_sources(x[d], pads[2 * d], pads[2 * d + 1], attrs.text("mode")); };
  if (axis > 0) {
    --axis;
    rows.extent = x[axis];
    rows.before = pads[2 * axis];
    rows.after = pads[2 * axis + 1];
    rows.ends = sources(axis);
  }
  for (size_t d = 0; d < axis; ++d) {
    rows.x.push_back(x[d]);
    rows.sources.push_back(sources(d));
    rows.y.push_back(static_cast<int64_t>(rows.sources[d].size()));
    rows.places.emplace_back(static_cast<size_t>(x[d]));
    for (size_t i = 0; i < rows.sources[d].size(); ++i)
      if (rows.sources[d][i] >= 0)
        rows.places[d][static_cast<size_t>(rows.sources[d][i])].push_back(static_cast<int64_t>(i));
  }
  return rows;
}

int64_t product(const std::vector<int64_t>& extents) {
  int64_t n = 1;
  for (int64_t e : extents) n *= e;
  return n;
}

// The row of x that row r of y shows, or -1.
int64_t source_row(const PaddedRows& rows, int64_t r) {
  int64_t row = 0, stride = 1;
  for (size_t d = rows.y.size(); d-- > 0; r /= rows.y[d]) {
    const int64_t from = rows.sources[d][static_cast<size_t>(r % rows.y[d])];
    if (from < 0) return -1;
    row += from * stride;
    stride *= rows.x[d];
  }
  return row;
}

template <typename T>
Recipe pad(const Problem& p) {
  const PaddedRows rows = rows_of(p.in_shape(0), p.attrs());
  const auto value = static_cast<T>(p.attrs().real_or("value", 0));
  const int threads = p.machine.threads;
  return own_recipe("pad", 0, p.machine.seconds(0, 1, p.traffic()), [=](const BoundNode& node) {
    return [=, from = input<const T>(node, 0), to = output<T>(node, 0)] {
      const int64_t width = rows.y_width(), inner = rows.inner;
      parallel_ranges(threads, product(rows.y), 1 + kGrainBytes / (4 * width), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          T* line = to + r * width;
          const int64_t row = source_row(rows, r);
          if (row < 0) {
            std::fill_n(line, width, value);
            continue;
          }
          const T* source = from + row * rows.x_width();
          const auto end_run = [&](int64_t i) {
            const int64_t shown = rows.ends[static_cast<size_t>(i)];
            if (shown < 0)
              std::fill_n(line + i * inner, inner, value);
            else
              std::copy_n(source + shown * inner, inner, line + i * inner);
          };
          for (int64_t i = 0; i < rows.before; ++i) end_run(i);
          std::copy_n(source, rows.x_width(), line + rows.before * inner);
          for (int64_t i = 0; i < rows.after; ++i) end_run(rows.before + rows.extent + i);
        }
      });
    };
  });
}

void add_row(const PaddedRows& rows, const float* dy, bool first, float* dx) {
  const float* middle = dy + rows.before * rows.inner;
  if (first)
    std::copy_n(middle, rows.x_width(), dx);
  else
    for (int64_t k = 0; k < rows.x_width(); ++k) dx[k] += middle[k];
  const auto add_run = [&](int64_t i) {
    const int64_t shown = rows.ends[static_cast<size_t>(i)];
    if (shown < 0) return;
    for (int64_t k = 0; k < rows.inner; ++k) dx[shown * rows.inner + k] += dy[i * rows.inner + k];
  };
  for (int64_t i = 0; i < rows.before; ++i) add_run(i);
  for (int64_t i = 0; i < rows.after; ++i) add_run(rows.before + rows.extent + i);
}

Recipe pad_grad(const Problem& p) {
  const PaddedRows rows = rows_of(p.out_shape(0), p.attrs());
  const int threads = p.machine.threads;
  return own_recipe("pad_grad", 0, p.machine.seconds(0, 1, p.traffic()), [=](const BoundNode& node) {
    return [=, dy = input<const float>(node, 0), dx = output<float>(node, 0)] {
      const size_t rank = rows.x.size();
      parallel_ranges(threads, product(rows.x), 1 + kGrainBytes / (4 * rows.x_width()),
                      [&](int64_t begin, int64_t end) {
                        for (int64_t r = begin; r < end; ++r) {
                          // Every combination of the rows of y that show this row of x.
                          std::array<const std::vector<int64_t>*, kMostDims> places{};
                          std::array<size_t, kMostDims> chosen{};
                          int64_t rest = r;
                          for (size_t d = rank; d-- > 0; rest /= rows.x[d])
                            places[d] = &rows.places[d][static_cast<size_t>(rest % rows.x[d])];
                          for (bool first = true, more = true; more; first = false) {
                            int64_t row = 0;
                            for (size_t d = 0; d < rank; ++d) row = row * rows.y[d] + (*places[d])[chosen[d]];
                            add_row(rows, dy + row * rows.y_width(), first, dx + r * rows.x_width());
                            more = false;
                            for (size_t d = rank; d-- > 0 && !more;) {
                              more = ++chosen[d] < places[d]->size();
                              if (!more) chosen[d] = 0;
                            }
                          }
                        }
                      });
    };
  });
}

}  // namespace

Result<Recipe> pad_recipe(const Problem& p) {
  if (p.in_shape(0).rank() > kMostDims) return fail(ErrorCode::kUnsupported, p.node.op + ": more than 16 dimensions");
  if (p.node.op == "pad_grad") return pad_grad(p);
  return p.in_dtype(0) == DType::kInt32 ? pad<int32_t>(p) : pad<float>(p);
}

}  // namespace plimsoll::engine::cpu
