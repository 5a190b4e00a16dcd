// Recipes for transpose and strided_slice, which read a strided view, and for strided_slice_grad, which writes one.
#include <algorithm>
#include <cstring>

#include "backends/cpu/move/walk.h"
#include "backends/cpu/parallel.h"
#include "backends/cpu/recipe.h"
#include "backends/cpu/simd/simd.h"

namespace plimsoll::engine::cpu {

namespace {

constexpr Bytes kGrainBytes = 64 * kKiB;  // fewer bytes are not worth another thread
constexpr int64_t kTile = 64;             // rows and columns of a transposed tile

// y = x[view], where the last dimension of y is not the last of x: tiles over these two dimensions, so that whole cache
// lines are read and written.
struct Tiles {
  WalkDims from, to;                       // the other dimensions: strides in x and in y
  int64_t rows = 1, row_stride = 1;        // the last dimension of x: its extent, and its stride in y
  int64_t columns = 1, column_stride = 1;  // the last dimension of y: its extent, and its stride in x
  int64_t row_tiles = 1, column_tiles = 1;
};

Tiles tiles_of(const StridedView& view, size_t last_of_x) {
  std::vector<StridedDim> from, to;
  int64_t stride = 1;
  Tiles tiles;
  for (size_t d = view.dims.size(); d-- > 0; stride *= view.dims[d].extent) {
    const auto& dim = view.dims[d];
    if (d + 1 == view.dims.size()) {
      tiles.columns = dim.extent;
      tiles.column_stride = dim.stride;
    } else if (d == last_of_x) {
      tiles.rows = dim.extent;
      tiles.row_stride = stride;
    } else {
      from.insert(from.begin(), dim);
      to.insert(to.begin(), {dim.extent, stride});
    }
  }
  tiles.from = WalkDims(from);
  tiles.to = WalkDims(to);
  tiles.row_tiles = (tiles.rows + kTile - 1) / kTile;
  tiles.column_tiles = (tiles.columns + kTile - 1) / kTile;
  return tiles;
}

template <typename T>
void transpose_tile(const T* from, int64_t column_stride, T* to, int64_t row_stride, int64_t rows, int64_t columns) {
  if constexpr (sizeof(T) == sizeof(float)) {
    simd().transpose(reinterpret_cast<const float*>(from), column_stride, reinterpret_cast<float*>(to), row_stride,
                     rows, columns);
  } else {
    for (int64_t c = 0; c < columns; ++c)
      for (int64_t r = 0; r < rows; ++r) to[r * row_stride + c] = from[c * column_stride + r];
  }
}

template <typename T>
void copy_tiles(int threads, const Tiles& t, const T* from, T* to) {
  const int64_t per_matrix = t.row_tiles * t.column_tiles;
  const auto tile_bytes = static_cast<Bytes>(sizeof(T)) * std::min(t.rows, kTile) * std::min(t.columns, kTile);
  parallel_ranges(threads, t.from.elements() * per_matrix, 1 + kGrainBytes / tile_bytes,
                  [&](int64_t begin, int64_t end) {
                    Walk source(t.from, begin / per_matrix), target(t.to, begin / per_matrix);
                    for (int64_t i = begin; i < end; ++i) {
                      const int64_t row = i % per_matrix / t.column_tiles * kTile;
                      const int64_t column = i % t.column_tiles * kTile;
                      transpose_tile(from + source.at() + column * t.column_stride + row, t.column_stride,
                                     to + target.at() + row * t.row_stride + column, t.row_stride,
                                     std::min(kTile, t.rows - row), std::min(kTile, t.columns - column));
                      if ((i + 1) % per_matrix == 0) {
                        source.next();
                        target.next();
                      }
                    }
                  });
}

// Runs along the last dimension of the view: `plain` is row-major, `strided` is read or written with the stride.
template <typename T, bool kWritesView>
void copy_runs(int threads, const WalkDims& outer, int64_t width, int64_t stride, const T* from, T* to) {
  parallel_ranges(threads, outer.elements(), 1 + kGrainBytes / (static_cast<Bytes>(sizeof(T)) * width),
                  [&](int64_t begin, int64_t end) {
                    Walk walk(outer, begin);
                    for (int64_t i = begin; i < end; ++i, walk.next()) {
                      const T* source = from + (kWritesView ? i * width : walk.at());
                      T* target = to + (kWritesView ? walk.at() : i * width);
                      if (stride == 1) {
                        std::memcpy(target, source, sizeof(T) * static_cast<size_t>(width));
                      } else {
                        for (int64_t k = 0; k < width; ++k)
                          target[kWritesView ? k * stride : k] = source[kWritesView ? k : k * stride];
                      }
                    }
                  });
}

struct Runs {
  WalkDims outer;
  int64_t width = 1, stride = 1;
};

Runs runs_of(const StridedView& view) {
  std::vector<StridedDim> dims = view.dims;
  Runs runs;
  if (!dims.empty()) {
    runs.width = dims.back().extent;
    runs.stride = dims.back().stride;
    dims.pop_back();
  }
  runs.outer = WalkDims(dims);
  return runs;
}

Result<Recipe> read_view(const Problem& p, const StridedView& whole) {
  const StridedView view = collapsed(whole);
  if (view.dims.size() > kMostDims)
    return fail(ErrorCode::kUnsupported, p.node.op + ": too many dimensions that cannot be merged");
  const double seconds = p.machine.seconds(0, 1, 2.0 * static_cast<double>(p.out(0).bytes()));
  const int threads = p.machine.threads;
  const Bytes size = size_of(p.in_dtype(0));
  const auto contiguous = std::find_if(view.dims.begin(), view.dims.end(), [](const auto& d) { return d.stride == 1; });
  const bool tiled = contiguous != view.dims.end() && contiguous + 1 != view.dims.end();
  const Tiles tiles = tiled ? tiles_of(view, static_cast<size_t>(contiguous - view.dims.begin())) : Tiles{};
  const Runs runs = runs_of(view);
  return own_recipe(p.node.op, 0, seconds, [=, offset = view.offset](const BoundNode& node) {
    return [=, x = node.inputs[0], y = node.outputs[0]] {
      with_element_of(size, [&](auto zero) {
        using T = decltype(zero);
        const auto* from = static_cast<const T*>(x) + offset;
        if (tiled)
          copy_tiles<T>(threads, tiles, from, static_cast<T*>(y));
        else
          copy_runs<T, false>(threads, runs.outer, runs.width, runs.stride, from, static_cast<T*>(y));
      });
    };
  });
}

Result<Recipe> write_view(const Problem& p) {
  const StridedView view = collapsed(sliced_view(p.out_shape(0), p.attrs()));
  if (view.dims.size() > kMostDims)
    return fail(ErrorCode::kUnsupported, p.node.op + ": too many dimensions that cannot be merged");
  const Runs runs = runs_of(view);
  const int threads = p.machine.threads;
  const Bytes size = size_of(p.in_dtype(0)), bytes = p.out(0).type.bytes();
  return own_recipe(p.node.op, 0, p.machine.seconds(0, 1, p.traffic()),
                    [=, offset = view.offset](const BoundNode& node) {
                      return [=, dy = node.inputs[0], dx = output<char>(node, 0)] {
                        parallel_ranges(threads, bytes, kGrainBytes, [&](int64_t begin, int64_t end) {
                          std::memset(dx + begin, 0, static_cast<size_t>(end - begin));
                        });
                        with_element_of(size, [&](auto zero) {
                          using T = decltype(zero);
                          copy_runs<T, true>(threads, runs.outer, runs.width, runs.stride, static_cast<const T*>(dy),
                                             reinterpret_cast<T*>(dx) + offset);
                        });
                      };
                    });
}

}  // namespace

Result<Recipe> strided_recipe(const Problem& p) {
  if (p.node.op == "transpose") return read_view(p, transposed_view(p.in_shape(0), p.attrs().list("perm")));
  if (p.node.op == "strided_slice") return read_view(p, sliced_view(p.in_shape(0), p.attrs()));
  return write_view(p);
}

}  // namespace plimsoll::engine::cpu
