// The loops of a recurrent layer: products of a few rows with panels that were packed once, and the cells' functions on
// vectors of units.

// Copies b[k][n], whose element (p, j) is at b[p * row + j * column], into panels [k][kNr], the last padded with zeros.
void pack_panels(const float* b, int64_t row, int64_t column, int64_t k, int64_t n, float* panels) {
  for (int64_t first = 0; first < n; first += kNr, panels += k * kNr)
    for (int64_t p = 0; p < k; ++p)
      for (int64_t j = 0; j < kNr; ++j) panels[p * kNr + j] = first + j < n ? b[p * row + (first + j) * column] : 0.0F;
}

template <int ROWS, bool ADD>
inline void panel_rows(int64_t k, const float* a, int64_t a_row, const float* panel, int64_t width, float* c,
                       int64_t c_row) {
  if (width == kNr) {
    small_product<ROWS, 2, ADD>(k, a, a_row, 1, panel, kNr, c, c_row);
    return;
  }
  float tile[ROWS * kNr];
  if (width <= kLanes)
    small_product<ROWS, 1, false>(k, a, a_row, 1, panel, kNr, tile, kNr);
  else
    small_product<ROWS, 2, false>(k, a, a_row, 1, panel, kNr, tile, kNr);
  for (int64_t i = 0; i < ROWS; ++i)
    for (int64_t j = 0; j < width; ++j) c[i * c_row + j] = tile[i * kNr + j] + (ADD ? c[i * c_row + j] : 0.0F);
}

// Rows in blocks of ROWS, the remainder in smaller blocks. A row's sums do not depend on the block it is in.
template <int ROWS, bool ADD>
inline void panel_block(int64_t k, const float* a, int64_t a_row, int64_t rows, const float* panel, int64_t width,
                        float* c, int64_t c_row) {
  while (rows >= ROWS) {
    panel_rows<ROWS, ADD>(k, a, a_row, panel, width, c, c_row);
    a += ROWS * a_row;
    c += ROWS * c_row;
    rows -= ROWS;
  }
  if constexpr (ROWS > 1) {
    if (rows > 0) panel_block<(ROWS + 1) / 2, ADD>(k, a, a_row, rows, panel, width, c, c_row);
  }
}

// c[rows][n] = or += a[rows][k] times panels.
void panel_product(const float* a, int64_t a_row, int64_t rows, const float* panels, int64_t k, int64_t n, float* c,
                   int64_t c_row, bool add) {
  for (int64_t j = 0; j < n; j += kNr, panels += k * kNr) {
    if (add)
      panel_block<static_cast<int>(kMr), true>(k, a, a_row, rows, panels, smaller(kNr, n - j), c + j, c_row);
    else
      panel_block<static_cast<int>(kMr), false>(k, a, a_row, rows, panels, smaller(kNr, n - j), c + j, c_row);
  }
}

// Calls use(f, df) with the function, and its slope as a function of its result.
template <typename Use>
inline void with_cell_function(CellFunction function, Use use) {
  switch (function) {
    case CellFunction::kLinear:
      return use([](float x) { return x; }, [](float) { return 1.0F; });
    case CellFunction::kRelu:
      return use([](float x) { return x < 0.0F ? 0.0F : x; }, [](float y) { return y > 0.0F ? 1.0F : 0.0F; });
    case CellFunction::kRelu6:
      return use([](float x) { return x < 0.0F   ? 0.0F
                                      : x > 6.0F ? 6.0F
                                                 : x; },
                 [](float y) { return (y > 0.0F) & (y < 6.0F) ? 1.0F : 0.0F; });
    case CellFunction::kLeakyRelu:
      return use([](float x) { return x > 0.0F ? x : kLeakySlope * x; },
                 [](float y) { return y > 0.0F ? 1.0F : kLeakySlope; });
    case CellFunction::kSigmoid:
      return use([](float x) { return sigmoid_of(x); }, [](float y) { return y * (1.0F - y); });
    case CellFunction::kHardSigmoid:
      return use(
          [](float x) {
            const float t = x + 3.0F;
            return (t < 0.0F ? 0.0F : t > 6.0F ? 6.0F : t) * (1.0F / 6.0F);
          },
          [](float y) { return (y > 0.0F) & (y < 1.0F) ? 1.0F / 6.0F : 0.0F; });
    case CellFunction::kTanh:
      return use([](float x) { return tanh_of(x); }, [](float y) { return 1.0F - y * y; });
    case CellFunction::kHardTanh:
      return use([](float x) { return x < -1.0F  ? -1.0F
                                      : x > 1.0F ? 1.0F
                                                 : x; },
                 [](float y) { return (y > -1.0F) & (y < 1.0F) ? 1.0F : 0.0F; });
    case CellFunction::kSoftsign:
      return use([](float x) { return x / (1.0F + __builtin_fabsf(x)); },
                 [](float y) {
                   const float t = 1.0F - __builtin_fabsf(y);
                   return t * t;
                 });
    case CellFunction::kSoftplus:
      return use([](float x) { return softplus_of(x); }, [](float y) { return -exp_minus_one(-y); });
    case CellFunction::kElu:
      return use([](float x) { return x > 0.0F ? x : exp_minus_one(x); },
                 [](float y) { return y > 0.0F ? 1.0F : y + 1.0F; });
    case CellFunction::kSelu:
      return use([](float x) { return kSeluScale * (x > 0.0F ? x : kSeluAlpha * exp_minus_one(x)); },
                 [](float y) { return y > 0.0F ? kSeluScale : y + kSeluScale * kSeluAlpha; });
    case CellFunction::kExponential:
      return use([](float x) { return exp_of(x); }, [](float y) { return y; });
  }
}

// y = f(x); may be the same address.
void cell_values(CellFunction function, const float* x, float* y, int64_t n) {
  with_cell_function(function, [=](auto f, auto) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = f(x[i]);
  });
}

// d *= f', where the function's value is y.
void cell_slopes(CellFunction function, const float* y, float* d, int64_t n) {
  with_cell_function(function, [=](auto, auto slope) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) d[i] *= slope(y[i]);
  });
}

// gates [4][u]: the sums of i, f, g, o, which become their values.
void lstm_cell(CellFunction f, CellFunction recurrent_f, float* gates, const float* c_before, float* c, float* h,
               int64_t u) {
  cell_values(recurrent_f, gates, gates, 2 * u);
  cell_values(f, gates + 2 * u, gates + 2 * u, u);
  cell_values(recurrent_f, gates + 3 * u, gates + 3 * u, u);
  const float *in = gates, *forget = gates + u, *candidate = gates + 2 * u, *out = gates + 3 * u;
#pragma omp simd
  for (int64_t j = 0; j < u; ++j) c[j] = forget[j] * c_before[j] + in[j] * candidate[j];
  cell_values(f, c, h, u);
#pragma omp simd
  for (int64_t j = 0; j < u; ++j) h[j] *= out[j];
}

// d [4][u]: gradients of the sums. dc: of the carry after the step, then of the one before. `scratch` has u elements.
void lstm_cell_grad(CellFunction f, CellFunction recurrent_f, const float* gates, const float* c_before, const float* c,
                    const float* dh, float* dc, float* d, float* scratch, int64_t u) {
  const float *in = gates, *forget = gates + u, *candidate = gates + 2 * u, *out = gates + 3 * u;
  float *d_in = d, *d_forget = d + u, *d_candidate = d + 2 * u, *d_out = d + 3 * u;
  cell_values(f, c, scratch, u);
#pragma omp simd
  for (int64_t j = 0; j < u; ++j) {
    d_out[j] = dh[j] * scratch[j];
    d_candidate[j] = dh[j] * out[j];
  }
  cell_slopes(f, scratch, d_candidate, u);
#pragma omp simd
  for (int64_t j = 0; j < u; ++j) {
    const float all = dc[j] + d_candidate[j];
    d_in[j] = all * candidate[j];
    d_forget[j] = all * c_before[j];
    d_candidate[j] = all * in[j];
    dc[j] = all * forget[j];
  }
  cell_slopes(recurrent_f, gates, d, 2 * u);
  cell_slopes(f, candidate, d_candidate, u);
  cell_slopes(recurrent_f, out, d_out, u);
}

// The candidate and the new state; z, r and the candidate's sum are given. gates [3 or 4][u]: z, r, candidate and, with
// reset_after, the candidate's part from the state, `inner`; else inner is null and is part of the sum.
void gru_cell(CellFunction f, float* gates, const float* inner, const float* h_before, float* h, int64_t u) {
  const float *update = gates, *reset = gates + u;
  float* candidate = gates + 2 * u;
  if (inner != nullptr) {
#pragma omp simd
    for (int64_t j = 0; j < u; ++j) candidate[j] += reset[j] * inner[j];
  }
  cell_values(f, candidate, candidate, u);
#pragma omp simd
  for (int64_t j = 0; j < u; ++j) h[j] = update[j] * h_before[j] + (1.0F - update[j]) * candidate[j];
}

// d [3 or 4][u]: gradients of the sums of z, r and the candidate, then of `inner`; without it, d of r is left for
// later.
void gru_cell_grad(CellFunction f, CellFunction recurrent_f, const float* gates, const float* inner,
                   const float* h_before, float* dh, float* d, int64_t u) {
  const float *update = gates, *reset = gates + u, *candidate = gates + 2 * u;
  float *d_update = d, *d_reset = d + u, *d_candidate = d + 2 * u, *d_inner = d + 3 * u;
#pragma omp simd
  for (int64_t j = 0; j < u; ++j) {
    d_update[j] = dh[j] * (h_before[j] - candidate[j]);
    d_candidate[j] = dh[j] * (1.0F - update[j]);
    dh[j] *= update[j];
  }
  cell_slopes(recurrent_f, update, d_update, u);
  cell_slopes(f, candidate, d_candidate, u);
  if (inner == nullptr) return;
#pragma omp simd
  for (int64_t j = 0; j < u; ++j) {
    d_reset[j] = d_candidate[j] * inner[j];
    d_inner[j] = d_candidate[j] * reset[j];
  }
  cell_slopes(recurrent_f, reset, d_reset, u);
}
