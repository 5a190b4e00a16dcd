// Matrix products on operands that are already laid out as the kernels read them, so that nothing is packed.

// c[ROWS][VECTORS * kLanes] (+)= a b over k. Element (i, p) of a is at a[i * a_row + p * a_step].
template <int ROWS, int VECTORS, bool ADD>
inline void small_product(int64_t k, const float* a, int64_t a_row, int64_t a_step, const float* b, int64_t b_step,
                          float* c, int64_t c_row) {
  Vec sum[ROWS][VECTORS];
#pragma GCC unroll 12
  for (int i = 0; i < ROWS; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < VECTORS; ++v) sum[i][v] = spread(0.0F);
  }
  for (int64_t p = 0; p < k; ++p) {
    Vec right[VECTORS];
#pragma GCC unroll 2
    for (int v = 0; v < VECTORS; ++v) right[v] = load(b + p * b_step + v * kLanes);
#pragma GCC unroll 12
    for (int i = 0; i < ROWS; ++i) {
      const Vec left = spread(a[i * a_row + p * a_step]);
#pragma GCC unroll 2
      for (int v = 0; v < VECTORS; ++v) sum[i][v] = add_product(left, right[v], sum[i][v]);
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < ROWS; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < VECTORS; ++v) {
      float* to = c + i * c_row + v * kLanes;
      store(to, ADD ? load(to) + sum[i][v] : sum[i][v]);
    }
  }
}

// c[rows][width] += sum over k of a[k][rows] b[k][width]. `width` is kLanes or kNr.
template <int VECTORS>
inline void add_outer_products_to(int64_t count, const float* a, int64_t rows, int64_t a_step, const float* b,
                                  int64_t b_step, float* c, int64_t c_row) {
  int64_t row = 0;
  for (; row + kMr <= rows; row += kMr)
    small_product<kMr, VECTORS, true>(count, a + row, 1, a_step, b, b_step, c + row * c_row, c_row);
  constexpr int kRest = kMr == 12 ? 4 : 2;
  if (row + 2 * kRest <= rows) {
    small_product<2 * kRest, VECTORS, true>(count, a + row, 1, a_step, b, b_step, c + row * c_row, c_row);
    row += 2 * kRest;
  }
  if (row + kRest <= rows) {
    small_product<kRest, VECTORS, true>(count, a + row, 1, a_step, b, b_step, c + row * c_row, c_row);
    row += kRest;
  }
  for (; row < rows; ++row)
    small_product<1, VECTORS, true>(count, a + row, 1, a_step, b, b_step, c + row * c_row, c_row);
}

inline void add_outer_products(int64_t count, const float* a, int64_t rows, int64_t a_step, const float* b,
                               int64_t b_step, int64_t width, float* c, int64_t c_row) {
  if (width == kNr)
    add_outer_products_to<2>(count, a, rows, a_step, b, b_step, c, c_row);
  else
    add_outer_products_to<1>(count, a, rows, a_step, b, b_step, c, c_row);
}

// Adds the first `width` columns of every row of x to sums[width].
inline void add_rows(int64_t count, const float* x, int64_t step, int64_t width, float* sums) {
  const int64_t whole = width / kLanes * kLanes;
  for (int64_t j = 0; j < whole; j += kLanes) {
    Vec sum = spread(0.0F);
    for (int64_t i = 0; i < count; ++i) sum = sum + load(x + i * step + j);
    store(sums + j, load(sums + j) + sum);
  }
  for (int64_t j = whole; j < width; ++j) {
    float sum = 0.0F;
    for (int64_t i = 0; i < count; ++i) sum = sum + x[i * step + j];
    sums[j] = sums[j] + sum;
  }
}

// Adds the weight gradient of a 1x1 convolution over `pixels` pixels to sums[c][o] and bias_sums[o].
void pointwise_weight_grad(const float* x, int64_t c, const float* dy, int64_t o, int64_t pixels, float* sums,
                           float* bias_sums) {
  constexpr int64_t kTogether = 128;  // 128 pixels of 256 input and 256 output channels fit the L2 cache
  for (int64_t first = 0; first < pixels; first += kTogether) {
    const int64_t count = smaller(kTogether, pixels - first);
    const float *a = x + first * c, *b = dy + first * o;
    for (int64_t j = 0; j < o; j += kNr) add_outer_products(count, a, c, c, b + j, o, smaller(kNr, o - j), sums + j, o);
    add_rows(count, b, o, o, bias_sums);
  }
}

// Adds the products of one row of taps; see SequencePixels. The last columns that do not fill a vector are copied to
// scratch with zeros behind them, and so are their sums.
void sequence_weight_grad(const SequencePixels& s, const float* x, const float* dy, float* sums, float* scratch) {
  const int64_t whole = s.width / kLanes * kLanes, rest = s.width - whole;
  for (int64_t j = 0; j < whole; j += kNr)
    add_outer_products(s.count, x, s.run, s.step, dy + j, s.o, smaller(kNr, whole - j), sums + j, s.o);
  if (rest == 0) return;
  float *columns = scratch, *rest_sums = scratch + s.count * kLanes;
  zero(columns, (s.count + s.run) * kLanes);
  for (int64_t i = 0; i < s.count; ++i)
    for (int64_t j = 0; j < rest; ++j) columns[i * kLanes + j] = dy[i * s.o + whole + j];
  add_outer_products(s.count, x, s.run, s.step, columns, kLanes, kLanes, rest_sums, kLanes);
  for (int64_t r = 0; r < s.run; ++r)
    for (int64_t j = 0; j < rest; ++j) sums[r * s.o + whole + j] += rest_sums[r * kLanes + j];
}

void sequence_bias_grad(const SequencePixels& s, const float* dy, float* sums) {
  add_rows(s.count, dy, s.o, s.width, sums);
}

// Register block of a 1x1 convolution: pixels by channel vectors. It holds more channels than the GEMM's block (kMr x
// kNr), because the image is read row by row and not packed.
constexpr int kPixels = kLanes == 16 ? 9 : 6, kPanelVectors = kLanes == 16 ? 3 : 2;

template <int ROWS, int VECTORS, bool STREAM>
inline void pointwise_block(const PointwiseProduct& p, const float* x, const float* panel, int64_t channel, float* y) {
  Vec sum[ROWS][VECTORS];
#pragma GCC unroll 9
  for (int i = 0; i < ROWS; ++i) {
#pragma GCC unroll 3
    for (int v = 0; v < VECTORS; ++v)
      sum[i][v] = p.bias != nullptr ? load(p.bias + channel + v * kLanes) : spread(0.0F);
  }
  for (int64_t k = 0; k < p.k; ++k) {
    Vec right[VECTORS];
#pragma GCC unroll 3
    for (int v = 0; v < VECTORS; ++v) right[v] = load(panel + (k * VECTORS + v) * kLanes);
#pragma GCC unroll 9
    for (int i = 0; i < ROWS; ++i) {
      const Vec left = spread(x[i * p.k + k]);
#pragma GCC unroll 3
      for (int v = 0; v < VECTORS; ++v) sum[i][v] = add_product(left, right[v], sum[i][v]);
    }
  }
#pragma GCC unroll 9
  for (int i = 0; i < ROWS; ++i) {
#pragma GCC unroll 3
    for (int v = 0; v < VECTORS; ++v) {
      float* to = y + i * p.n + channel + v * kLanes;
      const Vec done = p.relu ? not_below_zero(sum[i][v]) : sum[i][v];
      if (STREAM)
        stream(to, done);
      else
        store(to, done);
    }
  }
}

template <int ROWS, bool STREAM>
inline void pointwise_rows(const PointwiseProduct& p, const float* x, float* y) {
  int64_t channel = 0;
  for (; channel + kPanelVectors * kLanes <= p.n; channel += kPanelVectors * kLanes)
    pointwise_block<ROWS, kPanelVectors, STREAM>(p, x, p.panels + channel * p.k, channel, y);
  if (kPanelVectors > 2 && channel + 2 * kLanes <= p.n) {
    pointwise_block<ROWS, 2, STREAM>(p, x, p.panels + channel * p.k, channel, y);
    channel += 2 * kLanes;
  }
  if (channel < p.n) pointwise_block<ROWS, 1, STREAM>(p, x, p.panels + channel * p.k, channel, y);
}

template <bool STREAM>
inline void pointwise_pixels(const PointwiseProduct& p, const float* x, int64_t pixels, float* y) {
  int64_t pixel = 0;
  for (; pixel + kPixels <= pixels; pixel += kPixels)
    pointwise_rows<kPixels, STREAM>(p, x + pixel * p.k, y + pixel * p.n);
  for (; pixel < pixels; ++pixel) pointwise_rows<1, STREAM>(p, x + pixel * p.k, y + pixel * p.n);
}

void pointwise_forward(const PointwiseProduct& p, const float* x, int64_t pixels, float* y) {
  if (!p.stream) {
    pointwise_pixels<false>(p, x, pixels, y);
    return;
  }
  pointwise_pixels<true>(p, x, pixels, y);
  _mm_sfence();  // orders the non-temporal stores before other threads read y
}

// Copies weights w[k][n], or w[n][k] if `turned` (transposed), into consecutive panels [k][width].
void pointwise_panels(const float* w, int64_t k, int64_t n, bool turned, float* panels) {
  for (int64_t first = 0; first < n;) {
    const int64_t left = (n - first) / kLanes, vectors = left < kPanelVectors ? left : kPanelVectors;
    const int64_t width = vectors * kLanes;
    float* to = panels + first * k;
    for (int64_t i = 0; i < k; ++i)
      for (int64_t j = 0; j < width; ++j) to[i * width + j] = turned ? w[(first + j) * k + i] : w[i * n + first + j];
    first += width;
  }
}
