// Pooling over NHWC images; the inner loop runs over channels. Windows are clipped at the image's border, so padding is
// never the maximum and is not counted in an average.

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

// Loops that write the index (one byte per element) set simdlen(16). Otherwise the compiler vectorises for a full
// vector of bytes (64 lanes), and a tensor of 16 channels runs in the scalar remainder.

// A window that lies fully inside the image, with a size known at compile time, so that the maximum stays in registers.
template <int KH, int KW>
inline void max_window(const float* x, int64_t row, int64_t c, float* y, uint8_t* index) {
#pragma omp simd simdlen(16)
  for (int64_t i = 0; i < c; ++i) {
    float best = x[i];
    int32_t at = 0;
#pragma GCC unroll 9
    for (int p = 1; p < KH * KW; ++p) {
      const float v = x[(p / KW) * row + (p % KW) * c + i];
      at = v > best ? p : at;
      best = v > best ? v : best;
    }
    y[i] = best;
    index[i] = static_cast<uint8_t>(at);
  }
}

inline void max_window_any(const Window& w, const float* image, Span rows, Span columns, int64_t top, int64_t left,
                           float* y, uint8_t* index) {
  bool first = true;
  for (int64_t iy = rows.begin; iy < rows.end; ++iy) {
    for (int64_t ix = columns.begin; ix < columns.end; ++ix) {
      const float* x = image + (iy * w.w + ix) * w.c;
      const auto position = static_cast<uint8_t>((iy - top) * w.kw + (ix - left));
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

void max_pool(const Window& w, const float* x, float* y, uint8_t* index, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const float* image = x + (r / w.oh) * w.h * w.w * w.c;
    const int64_t top = (r % w.oh) * w.sh - w.top;
    const Span rows = window_span(r % w.oh, w.sh, w.top, w.kh, w.h);
    for (int64_t ox = 0; ox < w.ow; ++ox) {
      float* to = y + (r * w.ow + ox) * w.c;
      uint8_t* at = index + (r * w.ow + ox) * w.c;
      const int64_t left = ox * w.sw - w.left;
      const Span columns = window_span(ox, w.sw, w.left, w.kw, w.w);
      const bool inside = rows.end - rows.begin == w.kh && columns.end - columns.begin == w.kw;
      const float* from = image + (rows.begin * w.w + columns.begin) * w.c;
      if (inside && w.kh == 2 && w.kw == 2) {
        max_window<2, 2>(from, w.w * w.c, w.c, to, at);
      } else if (inside && w.kh == 3 && w.kw == 3) {
        max_window<3, 3>(from, w.w * w.c, w.c, to, at);
      } else {
        max_window_any(w, image, rows, columns, top, left, to, at);
      }
    }
  }
}

inline void zero(float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = 0.0F;
}

inline void take_if(const float* dy, const uint8_t* index, int32_t position, int64_t c, float* dx) {
#pragma omp simd simdlen(16)
  for (int64_t i = 0; i < c; ++i) dx[i] = static_cast<int32_t>(index[i]) == position ? dy[i] : 0.0F;
}

void max_pool_grad(const Window& w, const float* dy, const uint8_t* index, float* dx, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const int64_t image = r / w.h, iy = r % w.h;
    const Span rows = covering(iy, w.sh, w.top, w.kh, w.oh);
    for (int64_t ix = 0; ix < w.w; ++ix) {
      float* to = dx + (r * w.w + ix) * w.c;
      const Span columns = covering(ix, w.sw, w.left, w.kw, w.ow);
      bool first = true;
      for (int64_t oy = rows.begin; oy < rows.end; ++oy) {
        for (int64_t ox = columns.begin; ox < columns.end; ++ox) {
          const int64_t at = ((image * w.oh + oy) * w.ow + ox) * w.c;
          const auto position = static_cast<int32_t>((iy + w.top - oy * w.sh) * w.kw + (ix + w.left - ox * w.sw));
          const float* d = dy + at;
          const uint8_t* p = index + at;
          if (first) {
            take_if(d, p, position, w.c, to);
            first = false;
            continue;
          }
#pragma omp simd simdlen(16)
          for (int64_t i = 0; i < w.c; ++i) to[i] += static_cast<int32_t>(p[i]) == position ? d[i] : 0.0F;
        }
      }
      if (first) zero(to, w.c);
    }
  }
}

void avg_pool(const Window& w, const float* x, float* y, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const float* image = x + (r / w.oh) * w.h * w.w * w.c;
    const Span rows = window_span(r % w.oh, w.sh, w.top, w.kh, w.h);
    for (int64_t ox = 0; ox < w.ow; ++ox) {
      float* to = y + (r * w.ow + ox) * w.c;
      const Span columns = window_span(ox, w.sw, w.left, w.kw, w.w);
      const auto count = static_cast<float>((rows.end - rows.begin) * (columns.end - columns.begin));
      zero(to, w.c);
      for (int64_t iy = rows.begin; iy < rows.end; ++iy) {
        for (int64_t ix = columns.begin; ix < columns.end; ++ix) {
          const float* from = image + (iy * w.w + ix) * w.c;
#pragma omp simd
          for (int64_t i = 0; i < w.c; ++i) to[i] += from[i];
        }
      }
#pragma omp simd
      for (int64_t i = 0; i < w.c; ++i) to[i] /= count;
    }
  }
}

void avg_pool_grad(const Window& w, const float* dy, float* dx, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const int64_t image = r / w.h;
    const Span rows = covering(r % w.h, w.sh, w.top, w.kh, w.oh);
    for (int64_t ix = 0; ix < w.w; ++ix) {
      float* to = dx + (r * w.w + ix) * w.c;
      const Span columns = covering(ix, w.sw, w.left, w.kw, w.ow);
      zero(to, w.c);
      for (int64_t oy = rows.begin; oy < rows.end; ++oy) {
        const Span high = window_span(oy, w.sh, w.top, w.kh, w.h);
        for (int64_t ox = columns.begin; ox < columns.end; ++ox) {
          const Span wide = window_span(ox, w.sw, w.left, w.kw, w.w);
          const auto count = static_cast<float>((high.end - high.begin) * (wide.end - wide.begin));
          const float* d = dy + ((image * w.oh + oy) * w.ow + ox) * w.c;
#pragma omp simd
          for (int64_t i = 0; i < w.c; ++i) to[i] += d[i] / count;
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
