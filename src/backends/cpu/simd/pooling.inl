// Pooling over NHWC and NDHWC images; the inner loop runs over channels. Windows are clipped at the image's border, so
// padding is never the maximum and is not counted in an average.

inline int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}
inline int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

// The part of output position `o`'s window that lies inside [0, size).
struct Span {
  int64_t begin, end;
};
inline Span window_span(int64_t o, int64_t stride, int64_t pad, int64_t extent, int64_t size) {
  const int64_t start = o * stride - pad;
  return {larger(start, 0), smaller(start + extent, size)};
}
// The output positions whose windows contain input position `i`.
inline Span covering(int64_t i, int64_t stride, int64_t pad, int64_t extent, int64_t outputs) {
  const int64_t p = i + pad;
  const int64_t first = p < extent ? 0 : (p - extent) / stride + 1;
  return {first, smaller(p / stride + 1, outputs)};
}

// The windows of one row of results, or the results that a row of the image lies under: planes and rows.
struct RowSpans {
  Span planes, rows;

  int64_t count() const { return (planes.end - planes.begin) * (rows.end - rows.begin); }
};
inline RowSpans row_windows(const Window& w, int64_t row) {
  return {window_span(row / w.oh % w.od, w.sd, w.front, w.kd, w.d), window_span(row % w.oh, w.sh, w.top, w.kh, w.h)};
}
inline RowSpans row_coverings(const Window& w, int64_t row) {
  return {covering(row / w.h % w.d, w.sd, w.front, w.kd, w.od), covering(row % w.h, w.sh, w.top, w.kh, w.oh)};
}
inline int64_t length(Span span) {
  return span.end - span.begin;
}

// Loops that write the index (one byte per element) set simdlen(16). Otherwise the compiler vectorises for a full
// vector of bytes (64 lanes), and a tensor of 16 channels runs in the scalar remainder. Windows of more than 255
// elements have an index of four bytes.

// A window that lies fully inside the image, with a size known at compile time, so that the maximum stays in registers.
template <int KD, int KH, int KW>
inline void max_window(const float* x, int64_t plane, int64_t row, int64_t c, float* y, uint8_t* index) {
#pragma omp simd simdlen(16)
  for (int64_t i = 0; i < c; ++i) {
    float best = x[i];
    int32_t at = 0;
#pragma GCC unroll 9
    for (int p = 1; p < KD * KH * KW; ++p) {
      const float v = x[(p / (KH * KW)) * plane + (p / KW % KH) * row + (p % KW) * c + i];
      at = v > best ? p : at;
      best = v > best ? v : best;
    }
    y[i] = best;
    index[i] = static_cast<uint8_t>(at);
  }
}

template <typename Index>
inline void max_window_any(const Window& w, const float* image, int64_t row, int64_t ox, float* y, Index* index) {
  const RowSpans spans = row_windows(w, row);
  const Span columns = window_span(ox, w.sw, w.left, w.kw, w.w);
  const int64_t front = row / w.oh % w.od * w.sd - w.front, top = row % w.oh * w.sh - w.top, left = ox * w.sw - w.left;
  bool first = true;
  for (int64_t iz = spans.planes.begin; iz < spans.planes.end; ++iz) {
    for (int64_t iy = spans.rows.begin; iy < spans.rows.end; ++iy) {
      for (int64_t ix = columns.begin; ix < columns.end; ++ix) {
        const float* x = image + ((iz * w.h + iy) * w.w + ix) * w.c;
        const auto position = static_cast<Index>(((iz - front) * w.kh + iy - top) * w.kw + ix - left);
        if (first) {
          for (int64_t i = 0; i < w.c; ++i) y[i] = x[i];
          for (int64_t i = 0; i < w.c; ++i) index[i] = position;
          first = false;
          continue;
        }
#pragma omp simd simdlen(16)
        for (int64_t i = 0; i < w.c; ++i) {
          const bool wins = x[i] > y[i];
          index[i] = wins ? position : index[i];
          y[i] = wins ? x[i] : y[i];
        }
      }
    }
  }
}

// Returns whether a window of a common size lies inside the image, and then computes it.
inline bool max_window_inside(const Window& w, const float* image, const RowSpans& spans, Span columns, float* y,
                              uint8_t* index) {
  if (spans.count() != w.kd * w.kh || length(columns) != w.kw) return false;
  const float* from = image + ((spans.planes.begin * w.h + spans.rows.begin) * w.w + columns.begin) * w.c;
  const int64_t row = w.w * w.c, plane = w.h * row;
  if (w.kd == 1 && w.kh == 2 && w.kw == 2) {
    max_window<1, 2, 2>(from, plane, row, w.c, y, index);
  } else if (w.kd == 1 && w.kh == 3 && w.kw == 3) {
    max_window<1, 3, 3>(from, plane, row, w.c, y, index);
  } else if (w.kd == 2 && w.kh == 2 && w.kw == 2) {
    max_window<2, 2, 2>(from, plane, row, w.c, y, index);
  } else {
    return false;
  }
  return true;
}
inline bool max_window_inside(const Window&, const float*, const RowSpans&, Span, float*, int32_t*) {
  return false;
}

template <typename Index>
void max_pool(const Window& w, const float* x, float* y, Index* index, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const float* image = x + r / (w.od * w.oh) * w.d * w.h * w.w * w.c;
    const RowSpans spans = row_windows(w, r);
    for (int64_t ox = 0; ox < w.ow; ++ox) {
      float* to = y + (r * w.ow + ox) * w.c;
      Index* at = index + (r * w.ow + ox) * w.c;
      const Span columns = window_span(ox, w.sw, w.left, w.kw, w.w);
      if (!max_window_inside(w, image, spans, columns, to, at)) max_window_any(w, image, r, ox, to, at);
    }
  }
}

inline void zero(float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = 0.0F;
}

template <typename Index>
inline void take_if(const float* dy, const Index* index, int32_t position, int64_t c, float* dx) {
#pragma omp simd simdlen(16)
  for (int64_t i = 0; i < c; ++i) dx[i] = static_cast<int32_t>(index[i]) == position ? dy[i] : 0.0F;
}

template <typename Index>
void max_pool_grad(const Window& w, const float* dy, const Index* index, float* dx, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const int64_t image = r / (w.d * w.h), iz = r / w.h % w.d, iy = r % w.h;
    const RowSpans spans = row_coverings(w, r);
    for (int64_t ix = 0; ix < w.w; ++ix) {
      float* to = dx + (r * w.w + ix) * w.c;
      const Span columns = covering(ix, w.sw, w.left, w.kw, w.ow);
      bool first = true;
      for (int64_t oz = spans.planes.begin; oz < spans.planes.end; ++oz) {
        for (int64_t oy = spans.rows.begin; oy < spans.rows.end; ++oy) {
          const int64_t lines = (iz + w.front - oz * w.sd) * w.kh + iy + w.top - oy * w.sh;
          for (int64_t ox = columns.begin; ox < columns.end; ++ox) {
            const int64_t at = (((image * w.od + oz) * w.oh + oy) * w.ow + ox) * w.c;
            const auto position = static_cast<int32_t>(lines * w.kw + (ix + w.left - ox * w.sw));
            const float* d = dy + at;
            const Index* p = index + at;
            if (first) {
              take_if(d, p, position, w.c, to);
              first = false;
              continue;
            }
#pragma omp simd simdlen(16)
            for (int64_t i = 0; i < w.c; ++i) to[i] += static_cast<int32_t>(p[i]) == position ? d[i] : 0.0F;
          }
        }
      }
      if (first) zero(to, w.c);
    }
  }
}

constexpr int64_t kManyElements = 64;  // more would lose bits in a float sum

// The mean of a large window, summed in double.
inline void mean_of_many(const Window& w, const float* image, const RowSpans& spans, Span columns, float* y) {
  constexpr int64_t kBlock = 64;
  const auto count = static_cast<double>(spans.count() * length(columns));
  for (int64_t first = 0; first < w.c; first += kBlock) {
    const int64_t width = smaller(kBlock, w.c - first);
    double sum[kBlock] = {};
    for (int64_t iz = spans.planes.begin; iz < spans.planes.end; ++iz) {
      for (int64_t iy = spans.rows.begin; iy < spans.rows.end; ++iy) {
        for (int64_t ix = columns.begin; ix < columns.end; ++ix) {
          const float* from = image + ((iz * w.h + iy) * w.w + ix) * w.c + first;
#pragma omp simd
          for (int64_t i = 0; i < width; ++i) sum[i] += static_cast<double>(from[i]);
        }
      }
    }
    for (int64_t i = 0; i < width; ++i) y[first + i] = static_cast<float>(sum[i] / count);
  }
}

void avg_pool(const Window& w, const float* x, float* y, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const float* image = x + r / (w.od * w.oh) * w.d * w.h * w.w * w.c;
    const RowSpans spans = row_windows(w, r);
    for (int64_t ox = 0; ox < w.ow; ++ox) {
      float* to = y + (r * w.ow + ox) * w.c;
      const Span columns = window_span(ox, w.sw, w.left, w.kw, w.w);
      const auto count = static_cast<float>(spans.count() * length(columns));
      if (w.kd * w.kh * w.kw > kManyElements) {
        mean_of_many(w, image, spans, columns, to);
        continue;
      }
      zero(to, w.c);
      for (int64_t iz = spans.planes.begin; iz < spans.planes.end; ++iz) {
        for (int64_t iy = spans.rows.begin; iy < spans.rows.end; ++iy) {
          for (int64_t ix = columns.begin; ix < columns.end; ++ix) {
            const float* from = image + ((iz * w.h + iy) * w.w + ix) * w.c;
#pragma omp simd
            for (int64_t i = 0; i < w.c; ++i) to[i] += from[i];
          }
        }
      }
#pragma omp simd
      for (int64_t i = 0; i < w.c; ++i) to[i] /= count;
    }
  }
}

void avg_pool_grad(const Window& w, const float* dy, float* dx, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const RowSpans spans = row_coverings(w, r);
    for (int64_t ix = 0; ix < w.w; ++ix) {
      float* to = dx + (r * w.w + ix) * w.c;
      const Span columns = covering(ix, w.sw, w.left, w.kw, w.ow);
      zero(to, w.c);
      for (int64_t oz = spans.planes.begin; oz < spans.planes.end; ++oz) {
        for (int64_t oy = spans.rows.begin; oy < spans.rows.end; ++oy) {
          const int64_t row = (r / (w.d * w.h) * w.od + oz) * w.oh + oy;
          const int64_t lines = row_windows(w, row).count();
          for (int64_t ox = columns.begin; ox < columns.end; ++ox) {
            const auto count = static_cast<float>(lines * length(window_span(ox, w.sw, w.left, w.kw, w.w)));
            const float* d = dy + (row * w.ow + ox) * w.c;
#pragma omp simd
            for (int64_t i = 0; i < w.c; ++i) to[i] += d[i] / count;
          }
        }
      }
    }
  }
}

void global_avg_pool(const float* x, float* y, int64_t positions, int64_t c, int64_t begin, int64_t end) {
  constexpr int64_t kBlock = 64;
  for (int64_t n = begin; n < end; ++n) {
    for (int64_t first = 0; first < c; first += kBlock) {
      const int64_t width = smaller(kBlock, c - first);
      double sum[kBlock] = {};
      const float* from = x + n * positions * c + first;
      for (int64_t p = 0; p < positions; ++p) {
#pragma omp simd
        for (int64_t i = 0; i < width; ++i) sum[i] += static_cast<double>(from[p * c + i]);
      }
      for (int64_t i = 0; i < width; ++i)
        y[n * c + first + i] = static_cast<float>(sum[i] / static_cast<double>(positions));
    }
  }
}

void global_avg_pool_grad(const float* dy, float* dx, int64_t positions, int64_t c, int64_t begin, int64_t end) {
  const auto count = static_cast<float>(positions);
  for (int64_t n = begin; n < end; ++n) {
    const float* d = dy + n * c;
    float* first = dx + n * positions * c;
#pragma omp simd
    for (int64_t i = 0; i < c; ++i) first[i] = d[i] / count;
    for (int64_t p = 1; p < positions; ++p) {
#pragma omp simd
      for (int64_t i = 0; i < c; ++i) first[p * c + i] = first[i];
    }
  }
}

void global_max_pool(const float* x, float* y, int32_t* index, int64_t positions, int64_t c, int64_t begin,
                     int64_t end) {
  for (int64_t n = begin; n < end; ++n) {
    const float* from = x + n * positions * c;
    float* to = y + n * c;
    int32_t* at = index + n * c;
    for (int64_t i = 0; i < c; ++i) to[i] = from[i];
    for (int64_t i = 0; i < c; ++i) at[i] = 0;
    for (int64_t p = 1; p < positions; ++p) {
#pragma omp simd
      for (int64_t i = 0; i < c; ++i) {
        const bool wins = from[p * c + i] > to[i];
        at[i] = wins ? static_cast<int32_t>(p) : at[i];
        to[i] = wins ? from[p * c + i] : to[i];
      }
    }
  }
}

void global_max_pool_grad(const float* dy, const int32_t* index, float* dx, int64_t positions, int64_t c, int64_t begin,
                          int64_t end) {
  for (int64_t n = begin; n < end; ++n) {
    for (int64_t p = 0; p < positions; ++p) {
      float* to = dx + (n * positions + p) * c;
#pragma omp simd
      for (int64_t i = 0; i < c; ++i) to[i] = index[n * c + i] == static_cast<int32_t>(p) ? dy[n * c + i] : 0.0F;
    }
  }
}
