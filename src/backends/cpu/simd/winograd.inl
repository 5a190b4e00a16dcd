// 3x3 convolutions by Winograd's minimal filtering. A tile of 2 rows by 4 columns of results needs 24 multiplications
// per pair of channels instead of 72.
//
// Vertically it is F(2, 3), horizontally F(4, 3) with the points 0, +-kA, +-kB and infinity. With these, float32 is as
// accurate as direct summation; with 4 by 4 results, or with the usual points 1 and 2, it would not be. Squares and
// products of the points are exact in float32.
//
// Transformed tiles have the layout [position][tile][channel], position = 6 * row + column.
constexpr int64_t kTileRows = kWinogradRows, kTileColumns = kWinogradColumns;
constexpr int64_t kRowsUnder = kTileRows + 2, kColumnsUnder = kTileColumns + 2;
constexpr float kA = 11.0F / 16, kB = 21.0F / 16;
constexpr float kA2 = kA * kA, kB2 = kB * kB, kA3 = kA2 * kA, kB3 = kB2 * kB;
constexpr float kProduct2 = kA2 * kB2, kSum2 = kA2 + kB2;
// Denominators of Lagrange interpolation.
constexpr float kScale0 = static_cast<float>(1.0 / (double{kA2} * kB2));
constexpr float kScaleA = static_cast<float>(1.0 / (2.0 * kA2 * (double{kA2} - kB2)));
constexpr float kScaleB = static_cast<float>(1.0 / (2.0 * kB2 * (double{kB2} - kA2)));

template <int N>
struct Line {
  Vec v[N];
};

// a * b + c
inline Vec times_plus(float a, Vec b, Vec c) {
  return add_product(spread(a), b, c);
}
inline Vec times(float a, Vec b) {
  return spread(a) * b;
}

inline Line<4> image_column(const Line<4>& d) {
  return {{d.v[0] - d.v[2], d.v[1] + d.v[2], d.v[2] - d.v[1], d.v[1] - d.v[3]}};
}
inline Line<6> image_row(const Line<6>& d) {
  const Vec even_a = times_plus(-kB2, d.v[2], d.v[4]), odd_a = times_plus(-kB2, d.v[1], d.v[3]);
  const Vec even_b = times_plus(-kA2, d.v[2], d.v[4]), odd_b = times_plus(-kA2, d.v[1], d.v[3]);
  return {{times_plus(kProduct2, d.v[0], times_plus(-kSum2, d.v[2], d.v[4])), times_plus(kA, odd_a, even_a),
           times_plus(-kA, odd_a, even_a), times_plus(kB, odd_b, even_b), times_plus(-kB, odd_b, even_b),
           times_plus(kProduct2, d.v[1], times_plus(-kSum2, d.v[3], d.v[5]))}};
}

inline Line<2> result_column(const Line<4>& m) {
  return {{m.v[0] + (m.v[1] + m.v[2]), (m.v[1] - m.v[2]) - m.v[3]}};
}
inline Line<4> result_row(const Line<6>& m) {
  const Vec even_a = m.v[1] + m.v[2], odd_a = m.v[1] - m.v[2], even_b = m.v[3] + m.v[4], odd_b = m.v[3] - m.v[4];
  return {{m.v[0] + (even_a + even_b), times_plus(kA, odd_a, times(kB, odd_b)),
           times_plus(kA2, even_a, times(kB2, even_b)), times_plus(kA3, odd_a, times_plus(kB3, odd_b, m.v[5]))}};
}

// The transforms of the gradients are the transposes of the result and weight transforms.
inline Line<4> result_grad_column(const Line<2>& y) {
  return {{y.v[0], y.v[0] + y.v[1], y.v[0] - y.v[1], -y.v[1]}};
}
inline Line<6> result_grad_row(const Line<4>& y) {
  const Vec even_a = times_plus(kA2, y.v[2], y.v[0]), odd_a = times_plus(kA3, y.v[3], times(kA, y.v[1]));
  const Vec even_b = times_plus(kB2, y.v[2], y.v[0]), odd_b = times_plus(kB3, y.v[3], times(kB, y.v[1]));
  return {{y.v[0], even_a + odd_a, even_a - odd_a, even_b + odd_b, even_b - odd_b, y.v[3]}};
}

inline Line<4> weight_column(const Line<3>& g) {
  const Vec even = times(0.5F, g.v[0] + g.v[2]);
  return {{g.v[0], times_plus(0.5F, g.v[1], even), times_plus(-0.5F, g.v[1], even), g.v[2]}};
}
inline Line<6> weight_row(const Line<3>& g) {
  const Vec even_a = times_plus(kA2, g.v[2], g.v[0]), even_b = times_plus(kB2, g.v[2], g.v[0]);
  return {{times(kScale0, g.v[0]), times(kScaleA, times_plus(kA, g.v[1], even_a)),
           times(kScaleA, times_plus(-kA, g.v[1], even_a)), times(kScaleB, times_plus(kB, g.v[1], even_b)),
           times(kScaleB, times_plus(-kB, g.v[1], even_b)), g.v[2]}};
}

inline Line<3> weight_grad_column(const Line<4>& m) {
  const Vec even = times(0.5F, m.v[1] + m.v[2]);
  return {{m.v[0] + even, times(0.5F, m.v[1] - m.v[2]), even + m.v[3]}};
}
inline Line<3> weight_grad_row(const Line<6>& m) {
  const Vec even_a = times(kScaleA, m.v[1] + m.v[2]), odd_a = times(kScaleA, m.v[1] - m.v[2]);
  const Vec even_b = times(kScaleB, m.v[3] + m.v[4]), odd_b = times(kScaleB, m.v[3] - m.v[4]);
  return {{times_plus(kScale0, m.v[0], even_a) + even_b, times_plus(kA, odd_a, times(kB, odd_b)),
           times_plus(kA2, even_a, times_plus(kB2, even_b, m.v[5]))}};
}

struct TilePlace {
  int64_t image, row, column;  // position of the tile's first result; `image` counts the planes of the result
};
inline TilePlace place_of(const WinogradTiles& t, int64_t tile) {
  const int64_t across = (t.ow + kTileColumns - 1) / kTileColumns, down = (t.oh + kTileRows - 1) / kTileRows;
  return {tile / (across * down), tile / across % down * kTileRows, tile % across * kTileColumns};
}

// v = transformed tiles of the image, all channels.
void winograd_image(const WinogradTiles& t, const float* x, int64_t first, int64_t count, float* v) {
  const int64_t stride = t.capacity * t.k();
  for (int64_t i = 0; i < count * t.kd; ++i) {  // a plane of a tile at a time
    const TilePlace at = place_of(t, first + i / t.kd);
    const int64_t plane = at.image % t.od - t.front + i % t.kd, row = at.row - t.top, column = at.column - t.left;
    const bool plane_inside = plane >= 0 && plane < t.d;
    const bool inside =
        plane_inside && row >= 0 && row + kRowsUnder <= t.h && column >= 0 && column + kColumnsUnder <= t.w;
    const float* corner = x + (((at.image / t.od * t.d + plane) * t.h + row) * t.w + column) * t.c;
    for (int64_t c = 0; c < t.c; c += kLanes) {
      Line<4> columns[kColumnsUnder];
      for (int64_t s = 0; s < kColumnsUnder; ++s) {
        Line<4> d;
        for (int64_t r = 0; r < kRowsUnder; ++r) {
          const bool there =
              inside || (plane_inside && row + r >= 0 && row + r < t.h && column + s >= 0 && column + s < t.w);
          d.v[r] = there ? load(corner + (r * t.w + s) * t.c + c) : spread(0.0F);
        }
        columns[s] = image_column(d);
      }
      float* to = v + i * t.c + c;
      for (int64_t r = 0; r < kRowsUnder; ++r) {
        Line<6> d;
        for (int64_t s = 0; s < kColumnsUnder; ++s) d.v[s] = columns[s].v[r];
        const Line<6> done = image_row(d);
        for (int64_t s = 0; s < kColumnsUnder; ++s) store(to + (kColumnsUnder * r + s) * stride, done.v[s]);
      }
    }
  }
}

// z = transformed tiles of dy, `width` channels starting at `channel`. Also adds the sum of these channels to `sums`.
void winograd_result_grad(const WinogradTiles& t, const float* dy, int64_t channel, int64_t width, int64_t first,
                          int64_t count, float* z, float* sums) {
  const int64_t stride = t.capacity * width;
  for (int64_t i = 0; i < count; ++i) {
    const TilePlace at = place_of(t, first + i);
    const bool inside = at.row + kTileRows <= t.oh && at.column + kTileColumns <= t.ow;
    const float* corner = dy + ((at.image * t.oh + at.row) * t.ow + at.column) * t.o + channel;
    for (int64_t c = 0; c < width; c += kLanes) {
      Line<4> columns[kTileColumns];
      Vec sum = spread(0.0F);
      for (int64_t s = 0; s < kTileColumns; ++s) {
        Line<2> d;
        for (int64_t r = 0; r < kTileRows; ++r) {
          const bool there = inside || (at.row + r < t.oh && at.column + s < t.ow);
          d.v[r] = there ? load(corner + (r * t.ow + s) * t.o + c) : spread(0.0F);
        }
        sum = sum + (d.v[0] + d.v[1]);
        columns[s] = result_grad_column(d);
      }
      store(sums + c, load(sums + c) + sum);
      float* to = z + i * width + c;
      for (int64_t r = 0; r < kRowsUnder; ++r) {
        const Line<6> done = result_grad_row({{columns[0].v[r], columns[1].v[r], columns[2].v[r], columns[3].v[r]}});
        for (int64_t s = 0; s < kColumnsUnder; ++s) store(to + (kColumnsUnder * r + s) * stride, done.v[s]);
      }
    }
  }
}

// Transforms `width` channels of products back to results and applies bias and relu.
template <bool STREAM>
inline void write_results(const WinogradTiles& t, const float* m, int64_t channel, int64_t width, int64_t first,
                          int64_t count, const WinogradResult& result) {
  const int64_t stride = t.capacity * width;
  for (int64_t i = 0; i < count; ++i) {
    const TilePlace at = place_of(t, first + i);
    const int64_t rows = smaller(kTileRows, t.oh - at.row), columns = smaller(kTileColumns, t.ow - at.column);
    float* corner = result.y + ((at.image * t.oh + at.row) * t.ow + at.column) * t.o + channel;
    for (int64_t c = 0; c < width; c += kLanes) {
      const float* from = m + i * width + c;
      Line<4> across[kRowsUnder];
      for (int64_t r = 0; r < kRowsUnder; ++r) {
        Line<6> d;
        for (int64_t s = 0; s < kColumnsUnder; ++s) d.v[s] = load(from + (kColumnsUnder * r + s) * stride);
        across[r] = result_row(d);
      }
      const Vec shift = result.bias != nullptr ? load(result.bias + channel + c) : spread(0.0F);
      for (int64_t s = 0; s < columns; ++s) {
        const Line<2> done = result_column({{across[0].v[s], across[1].v[s], across[2].v[s], across[3].v[s]}});
        for (int64_t r = 0; r < rows; ++r) {
          const Vec shifted = done.v[r] + shift, v = result.relu ? not_below_zero(shifted) : shifted;
          float* to = corner + (r * t.ow + s) * t.o + c;
          if (STREAM)
            stream(to, v);
          else
            store(to, v);
        }
      }
    }
  }
}

void winograd_result(const WinogradTiles& t, const float* m, int64_t channel, int64_t width, int64_t first,
                     int64_t count, const WinogradResult& result) {
  if (!result.stream) {
    write_results<false>(t, m, channel, width, first, count, result);
    return;
  }
  write_results<true>(t, m, channel, width, first, count, result);
  _mm_sfence();  // orders the non-temporal stores before other threads read y
}

// u = transformed weights, one panel [k][column] per position, from w[plane][tap][channel][column], k = (plane,
// channel). For the input gradient the weights are rotated by 180 degrees.
void winograd_weights(const WinogradWeights& w, int64_t column, int64_t width, float* u) {
  const int64_t depth = w.kd * w.c;
  for (int64_t k = 0; k < depth; ++k) {
    const int64_t channel = k % w.c, first_tap = 9 * (w.turned ? w.kd - 1 - k / w.c : k / w.c);
    for (int64_t j = 0; j < width; j += kLanes) {
      Line<4> columns[3];
      for (int64_t s = 0; s < 3; ++s) {
        Line<3> g;
        for (int64_t r = 0; r < 3; ++r) {
          const int64_t tap = 3 * r + s;
          if (w.turned) {
            float gathered[kLanes];
            for (int64_t l = 0; l < kLanes; ++l)
              gathered[l] = w.w[((first_tap + 8 - tap) * w.n + column + j + l) * w.c + channel];
            g.v[r] = load(gathered);
          } else {
            g.v[r] = load(w.w + ((first_tap + tap) * w.c + channel) * w.n + column + j);
          }
        }
        columns[s] = weight_column(g);
      }
      for (int64_t r = 0; r < kRowsUnder; ++r) {
        const Line<6> done = weight_row({{columns[0].v[r], columns[1].v[r], columns[2].v[r]}});
        for (int64_t s = 0; s < kColumnsUnder; ++s)
          store(u + ((kColumnsUnder * r + s) * depth + k) * width + j, done.v[s]);
      }
    }
  }
}

void winograd_weight_grad(const WinogradTiles& t, const float* sums, int64_t channel, int64_t width, float* dw) {
  for (int64_t k = 0; k < t.k(); ++k)
    for (int64_t j = 0; j < width; j += kLanes) {
      Line<3> rows[kRowsUnder];
      for (int64_t r = 0; r < kRowsUnder; ++r) {
        Line<6> m;
        for (int64_t s = 0; s < kColumnsUnder; ++s) m.v[s] = load(sums + ((kColumnsUnder * r + s) * t.k() + k) * width + j);
        rows[r] = weight_grad_row(m);
      }
      for (int64_t s = 0; s < 3; ++s) {
        const Line<3> done = weight_grad_column({{rows[0].v[s], rows[1].v[s], rows[2].v[s], rows[3].v[s]}});
        for (int64_t r = 0; r < 3; ++r)
          store(dw + ((9 * (k / t.c) + 3 * r + s) * t.c + k % t.c) * t.o + channel + j, done.v[r]);
      }
    }
}

constexpr int64_t kRun = 64;  // terms per partial sum; adding partial sums keeps long sums accurate

// m = v u, separately for each position. `rows` is the number of tiles, a multiple of kMr.
template <int VECTORS>
inline void multiply_positions(const WinogradTiles& t, const float* v, const float* u, int64_t rows, float* m) {
  constexpr int64_t width = VECTORS * kLanes;
  for (int64_t position = 0; position < kWinogradPositions; ++position) {
    const int64_t depth = t.k();
    const float* a = v + position * t.capacity * depth;
    const float* b = u + position * depth * width;
    float* c = m + position * t.capacity * width;
    for (int64_t row = 0; row < rows; row += kMr) {
      float* to = c + row * width;
      small_product<kMr, VECTORS, false>(smaller(kRun, depth), a + row * depth, depth, 1, b, width, to, width);
      for (int64_t k = kRun; k < depth; k += kRun)
        small_product<kMr, VECTORS, true>(smaller(kRun, depth - k), a + row * depth + k, depth, 1, b + k * width, width,
                                          to, width);
    }
  }
}

void winograd_multiply(const WinogradTiles& t, const float* v, const float* u, int64_t width, int64_t count, float* m) {
  const int64_t rows = (count + kMr - 1) / kMr * kMr;
  if (width == kNr)
    multiply_positions<2>(t, v, u, rows, m);
  else
    multiply_positions<1>(t, v, u, rows, m);
}

// sums[position][c][width] += products of image and result gradient tiles over `count` tiles.
void winograd_accumulate(const WinogradTiles& t, const float* v, const float* z, int64_t width, int64_t count,
                         float* sums) {
  for (int64_t position = 0; position < kWinogradPositions; ++position)
    add_outer_products(count, v + position * t.capacity * t.k(), t.k(), t.k(), z + position * t.capacity * width, width,
                       width, sums + position * t.k() * width, width);
}
