// The element-wise instructions. A comment after a signature lists the inputs, the constants in `f`, and -> the
// outputs. `in` and `out` may be the same address, because an iteration reads before it writes. `omp simd` tells the
// compiler so; otherwise it would have to assume that the ranges overlap.

template <typename F>
inline void map1(const TileCall& c, F f) {
  const auto* x = static_cast<const float*>(c.in[0]);
  auto* y = static_cast<float*>(c.out[0]);
#pragma omp simd
  for (int64_t i = 0; i < c.n; ++i) y[i] = f(x[i]);
}

template <typename F>
inline void map2(const TileCall& c, F f) {
  const auto* a = static_cast<const float*>(c.in[0]);
  const auto* b = static_cast<const float*>(c.in[1]);
  auto* y = static_cast<float*>(c.out[0]);
#pragma omp simd
  for (int64_t i = 0; i < c.n; ++i) y[i] = f(a[i], b[i]);
}

template <typename F>
inline void map3(const TileCall& c, F f) {
  const auto* first = static_cast<const float*>(c.in[0]);
  const auto* second = static_cast<const float*>(c.in[1]);
  const auto* third = static_cast<const float*>(c.in[2]);
  auto* y = static_cast<float*>(c.out[0]);
#pragma omp simd
  for (int64_t i = 0; i < c.n; ++i) y[i] = f(first[i], second[i], third[i]);
}

inline float scalar(const TileCall& c, int i) {
  return *static_cast<const float*>(c.in[i]);
}

// silu'(x) times d.
inline float silu_slope(float d, float x) {
  const float s = sigmoid_of(x);
  return d * (s * (1.0F + x * (1.0F - s)));
}

// relu6(x + 3) / 6, as Keras on TensorFlow computes it. NaN is preserved.
inline float hard_sigmoid_of(float x) {
  const float v = x + 3.0F;
  return (v < 0.0F ? 0.0F : v > 6.0F ? 6.0F : v) / 6.0F;
}

// Instructions that are a single expression (fused/ops.inl).
#define UNARY(name, work, ...)                    \
  void tile_##name(const TileCall& c) {           \
    map1(c, [](float x) { return __VA_ARGS__; }); \
  }
#define BINARY(name, work, ...)                            \
  void tile_##name(const TileCall& c) {                    \
    map2(c, [](float a, float b) { return __VA_ARGS__; }); \
  }
#define TERNARY(name, work, ...)                                        \
  void tile_##name(const TileCall& c) {                                 \
    map3(c, [](float a, float b, float other) { return __VA_ARGS__; }); \
  }
#include "backends/cpu/fused/ops.inl"

void tile_copy(const TileCall& c) {
  map1(c, [](float x) { return x; });
}
void tile_full_like(const TileCall& c) {  // f: value
  const float value = c.f[0];
  auto* y = static_cast<float*>(c.out[0]);
#pragma omp simd
  for (int64_t i = 0; i < c.n; ++i) y[i] = value;
}
// x, the whole smaller tensor; i: the address of its TileView. Copies or fills one run of the innermost dimension at a
// time.
template <typename T, typename F>
inline void broadcast_tile(const TileCall& c, F to_float) {
  const TileView& view = *reinterpret_cast<const TileView*>(c.i[0]);
  const auto* x = static_cast<const T*>(c.in[0]);
  auto* y = static_cast<float*>(c.out[0]);
  const int last = view.rank - 1;
  int64_t index[TileView::kMostDims], at = 0, rest = c.first;
  for (int d = last; d >= 0; --d) {
    index[d] = rest % view.extent[d];
    rest /= view.extent[d];
    at += index[d] * view.stride[d];
  }
  for (int64_t done = 0; done < c.n;) {
    int64_t run = view.extent[last] - index[last];
    if (run > c.n - done) run = c.n - done;
    if (view.stride[last] == 1) {
      for (int64_t i = 0; i < run; ++i) y[done + i] = to_float(x[at + i]);
    } else {
      const float value = to_float(x[at]);
      for (int64_t i = 0; i < run; ++i) y[done + i] = value;
    }
    done += run;
    at -= index[last] * view.stride[last];
    index[last] = 0;
    for (int d = last - 1; d >= 0; --d) {
      at += view.stride[d];
      if (++index[d] < view.extent[d]) break;
      at -= view.stride[d] * index[d];
      index[d] = 0;
    }
  }
}
void tile_broadcast(const TileCall& c) {
  broadcast_tile<float>(c, [](float x) { return x; });
}
void tile_broadcast_bf16(const TileCall& c) {
  broadcast_tile<uint16_t>(c, of_bf16);
}
void tile_broadcast_f16(const TileCall& c) {
  broadcast_tile<uint16_t>(c, of_f16);
}
void tile_scale(const TileCall& c) {  // x, s
  const float s = scalar(c, 1);
  map1(c, [=](float x) { return x * s; });
}
void tile_affine(const TileCall& c) {  // f: scale, offset
  const float s = c.f[0], o = c.f[1];
  map1(c, [=](float x) { return x * s + o; });
}

// f: threshold, slope, lower limit, maximum. With a maximum the lower limit is 0; without one, the limits are -infinity
// and infinity. NaN is preserved.
void tile_relu(const TileCall& c) {
  map1(c, [](float x) { return x < 0.0F ? 0.0F : x; });
}
void tile_relu_any(const TileCall& c) {
  const float t = c.f[0], s = c.f[1], floor = c.f[2], m = c.f[3];
  map1(c, [=](float x) {
    const float above = x > m ? m : (x < floor ? floor : x);
    return x > t ? above : s * (x - t);
  });
}
void tile_relu_grad(const TileCall& c) {  // dy, and y or x: both give the same for plain relu
  map2(c, [](float d, float v) { return v > 0.0F ? d : 0.0F; });
}
void tile_relu_grad_any(const TileCall& c) {  // dy, and x, or y if it is on the same side of 0 and of the maximum
  const float t = c.f[0], s = c.f[1], floor = c.f[2], m = c.f[3];
  map2(c, [=](float d, float v) {
    const float above = v < floor || v >= m ? 0.0F : d;
    return v > t ? above : d * s;
  });
}

void tile_elu(const TileCall& c) {  // f: alpha
  const float alpha = c.f[0];
  map1(c, [=](float x) {
    const float below = alpha * exp_minus_one(x > 0.0F ? 0.0F : x);
    return x > 0.0F ? x : below;
  });
}
void tile_elu_grad(const TileCall& c) {  // dy, y
  const float alpha = c.f[0];
  map2(c, [=](float d, float y) { return y > 0.0F ? d : d * (y + alpha); });
}

void tile_gelu(const TileCall& c) {
  map1(c, [](float x) { return x * normal_cdf(x); });
}
void tile_gelu_grad(const TileCall& c) {  // dy, x
  map2(c, [](float d, float x) { return d * (normal_cdf(x) + x * (0.3989422804014327F * exp_of(-0.5F * x * x))); });
}
// 0.5 * x * (1 + tanh(u)) is x * sigmoid(2u).
inline float gelu_inner(float x) {
  return 1.5957691216057308F * (x + 0.044715F * x * x * x);
}
void tile_gelu_tanh(const TileCall& c) {
  map1(c, [](float x) { return x * sigmoid_of(gelu_inner(x)); });
}
void tile_gelu_tanh_grad(const TileCall& c) {  // dy, x
  map2(c, [](float d, float x) {
    const float s = sigmoid_of(gelu_inner(x));
    const float slope = 1.5957691216057308F * (1.0F + 0.134145F * x * x);
    return d * (s + x * (s * (1.0F - s) * slope));
  });
}
void tile_normalize(const TileCall& c) {  // x, center, factor
  const auto* x = static_cast<const float*>(c.in[0]);
  const auto* center = static_cast<const float*>(c.in[1]);
  const auto* factor = static_cast<const float*>(c.in[2]);
  auto* y = static_cast<float*>(c.out[0]);
#pragma omp simd
  for (int64_t i = 0; i < c.n; ++i) y[i] = (x[i] - center[i]) * factor[i];
}
void tile_normalize_shift(const TileCall& c) {  // x, center, factor, offset
  const auto* x = static_cast<const float*>(c.in[0]);
  const auto* center = static_cast<const float*>(c.in[1]);
  const auto* factor = static_cast<const float*>(c.in[2]);
  const auto* offset = static_cast<const float*>(c.in[3]);
  auto* y = static_cast<float*>(c.out[0]);
#pragma omp simd
  for (int64_t i = 0; i < c.n; ++i) y[i] = (x[i] - center[i]) * factor[i] + offset[i];
}
void tile_norm_input_grad(const TileCall& c) {  // dy, x, center, mean of dy, slope, factor
  const auto* dy = static_cast<const float*>(c.in[0]);
  const auto* x = static_cast<const float*>(c.in[1]);
  const auto* center = static_cast<const float*>(c.in[2]);
  const auto* mean_dy = static_cast<const float*>(c.in[3]);
  const auto* slope = static_cast<const float*>(c.in[4]);
  const auto* factor = static_cast<const float*>(c.in[5]);
  auto* dx = static_cast<float*>(c.out[0]);
#pragma omp simd
  for (int64_t i = 0; i < c.n; ++i) dx[i] = (dy[i] - mean_dy[i] - (x[i] - center[i]) * slope[i]) * factor[i];
}

// out += x, and out += dy * (x - center). The outputs are the tile-long accumulators of a reduction.
void tile_accumulate(const TileCall& c) {
  const auto* x = static_cast<const float*>(c.in[0]);
  auto* sum = static_cast<float*>(c.out[0]);
#pragma omp simd
  for (int64_t i = 0; i < c.n; ++i) sum[i] += x[i];
}
void tile_accumulate_centered(const TileCall& c) {
  const auto* dy = static_cast<const float*>(c.in[0]);
  const auto* x = static_cast<const float*>(c.in[1]);
  const auto* center = static_cast<const float*>(c.in[2]);
  auto* sum = static_cast<float*>(c.out[0]);
#pragma omp simd
  for (int64_t i = 0; i < c.n; ++i) sum[i] += dy[i] * (x[i] - center[i]);
}

void tile_accumulate_moments(const TileCall& c) {  // x, shift -> sum, squares
  const auto* x = static_cast<const float*>(c.in[0]);
  const auto* shift = static_cast<const float*>(c.in[1]);
  auto *sum = static_cast<float*>(c.out[0]), *squares = static_cast<float*>(c.out[1]);
#pragma omp simd
  for (int64_t i = 0; i < c.n; ++i) {
    const float d = x[i] - shift[i];
    sum[i] += d;
    squares[i] += d * d;
  }
}

template <typename T>
inline void convert(const TileCall& c) {
  const auto* x = static_cast<const T*>(c.in[0]);
  auto* y = static_cast<float*>(c.out[0]);
#pragma omp simd
  for (int64_t i = 0; i < c.n; ++i) y[i] = static_cast<float>(x[i]);
}
void tile_from_u8(const TileCall& c) {
  convert<uint8_t>(c);
}
void tile_from_i8(const TileCall& c) {
  convert<int8_t>(c);
}
void tile_from_u16(const TileCall& c) {
  convert<uint16_t>(c);
}
void tile_from_i16(const TileCall& c) {
  convert<int16_t>(c);
}
void tile_from_i32(const TileCall& c) {
  convert<int32_t>(c);
}
void tile_from_u32(const TileCall& c) {
  convert<uint32_t>(c);
}
void tile_from_i64(const TileCall& c) {
  convert<int64_t>(c);
}
void tile_from_u64(const TileCall& c) {
  convert<uint64_t>(c);
}
void tile_from_f64(const TileCall& c) {
  convert<double>(c);
}

void tile_from_bf16(const TileCall& c) {
  widen_bf16(static_cast<const uint16_t*>(c.in[0]), static_cast<float*>(c.out[0]), c.n);
}
void tile_from_f16(const TileCall& c) {
  widen_f16(static_cast<const uint16_t*>(c.in[0]), static_cast<float*>(c.out[0]), c.n);
}
void tile_to_bf16(const TileCall& c) {
  narrow_bf16(static_cast<const float*>(c.in[0]), static_cast<uint16_t*>(c.out[0]), c.n);
}
void tile_to_f16(const TileCall& c) {
  narrow_f16(static_cast<const float*>(c.in[0]), static_cast<uint16_t*>(c.out[0]), c.n);
}
// Rounds to the numbers of a half-precision type, in place.
void tile_round_bf16(const TileCall& c) {
  map1(c, [](float x) { return of_bf16(to_bf16(x)); });
}
void tile_round_f16(const TileCall& c) {
  constexpr int64_t kPart = 64;
  uint16_t part[kPart];
  const auto* x = static_cast<const float*>(c.in[0]);
  auto* y = static_cast<float*>(c.out[0]);
  for (int64_t i = 0; i < c.n; i += kPart) {
    const int64_t count = c.n - i < kPart ? c.n - i : kPart;
    narrow_f16(x + i, part, count);
    widen_f16(part, y + i, count);
  }
}
