// exp, tanh, erf and log as branch-free code that the compiler vectorises. Largest errors measured against double
// (tests/backends/math_test.cpp prints and bounds them): sigmoid 2.1 ULP, tanh 1.2, elu 2.2, silu 3.0; gelu 1.7 ULP of
// its argument. Range reduction and polynomials follow Cephes (S. Moshier, expf.c, tanhf.c, logf.c, ndtrf.c).

inline float as_float(uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}
inline uint32_t as_bits(float x) {
  return __builtin_bit_cast(uint32_t, x);
}

inline float fused_multiply_add(float a, float b, float c) {
#ifdef __FMA__
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

// Adding 1.5 * 2^23 leaves the nearest integer in the low bits of the sum. The factor 2^n is applied as two factors, so
// that results near the ends of the range, including subnormals, are correct.
inline float exp_of(float x) {
  constexpr float kRound = 12582912.0F;
  const float low = x < -105.0F ? -105.0F : x;
  const float clamped = low > 89.0F ? 89.0F : low;
  const float shifted = fused_multiply_add(clamped, 1.44269504088896341F, kRound);
  const float n = shifted - kRound;
  float r = fused_multiply_add(n, -0.693359375F, clamped);
  r = fused_multiply_add(n, 2.12194440e-4F, r);
  float p = fused_multiply_add(1.9875691500e-4F, r, 1.3981999507e-3F);
  p = fused_multiply_add(p, r, 8.3334519073e-3F);
  p = fused_multiply_add(p, r, 4.1665795894e-2F);
  p = fused_multiply_add(p, r, 1.6666665459e-1F);
  p = fused_multiply_add(p, r, 5.0000001201e-1F);
  p = fused_multiply_add(p, r * r, r) + 1.0F;
  const auto whole = static_cast<int32_t>(as_bits(shifted) - as_bits(kRound));
  const int32_t half = whole >> 1;
  const float scale_a = as_float(static_cast<uint32_t>(half + 127) << 23);
  const float scale_b = as_float(static_cast<uint32_t>(whole - half + 127) << 23);
  return p * scale_a * scale_b;
}

// Takes the exponential of a negative argument only, so that far below zero the result becomes subnormal instead of
// dropping to 0.
inline float sigmoid_of(float x) {
  const float e = exp_of(-__builtin_fabsf(x));
  return (x < 0.0F ? e : 1.0F) / (1.0F + e);
}

inline float tanh_of(float x) {
  const float a = __builtin_fabsf(x);
  const float z = x * x;
  float p = fused_multiply_add(-5.70498872745e-3F, z, 2.06390887954e-2F);
  p = fused_multiply_add(p, z, -5.37397155531e-2F);
  p = fused_multiply_add(p, z, 1.33314422036e-1F);
  p = fused_multiply_add(p, z, -3.33332819422e-1F);
  const float small = fused_multiply_add(p * z, x, x);
  const float large = 1.0F - 2.0F / (exp_of(2.0F * a) + 1.0F);
  return a < 0.625F ? small : (x < 0 ? -large : large);
}

// log of a positive normal float.
inline float log_of(float x) {
  const uint32_t bits = as_bits(x);
  // Brings the mantissa into [sqrt(1/2), sqrt(2)).
  const uint32_t offset = bits - 0x3f3504f3U;
  const auto e = static_cast<float>(static_cast<int32_t>(offset) >> 23);
  const float m = as_float((offset & 0x007fffffU) + 0x3f3504f3U) - 1.0F;
  const float z = m * m;
  float p = fused_multiply_add(7.0376836292e-2F, m, -1.1514610310e-1F);
  p = fused_multiply_add(p, m, 1.1676998740e-1F);
  p = fused_multiply_add(p, m, -1.2420140846e-1F);
  p = fused_multiply_add(p, m, 1.4249322787e-1F);
  p = fused_multiply_add(p, m, -1.6668057665e-1F);
  p = fused_multiply_add(p, m, 2.0000714765e-1F);
  p = fused_multiply_add(p, m, -2.4999993993e-1F);
  p = fused_multiply_add(p, m, 3.3333331174e-1F);
  float y = p * m * z;
  y = fused_multiply_add(e, -2.12194440e-4F, y);
  y = fused_multiply_add(z, -0.5F, y);
  return fused_multiply_add(e, 0.693359375F, m + y);
}

// log(1 + e) for e in [0, 1]. The rounding error of 1 + e is corrected to first order.
inline float log_one_plus(float e) {
  const float u = 1.0F + e;
  return log_of(u) + (e - (u - 1.0F)) / u;
}

// log of any float: -infinity of 0, NaN of negative numbers.
inline float log_any(float x) {
  const bool subnormal = x < 0x1p-126F;
  const float y = log_of(subnormal ? x * 0x1p25F : x) - (subnormal ? 17.328679513998632F : 0.0F);
  const float finite = x < __builtin_inff() ? y : x;
  return x > 0.0F ? finite : x == 0.0F ? -__builtin_inff() : __builtin_nanf("");
}

// log(1 + x) for any x, corrected as in log_one_plus.
inline float log1p_of(float x) {
  const float u = 1.0F + x;
  const float y = log_any(u);
  return u > 0.0F && u < __builtin_inff() ? y + (x - (u - 1.0F)) / u : y;
}

// exp(x) - 1 as tanh(x/2) * (exp(x) + 1), which near 0 avoids the difference of nearly equal values.
inline float exp_minus_one(float x) {
  return tanh_of(0.5F * x) * (exp_of(x) + 1.0F);
}

// log(1 + exp(x)), from the exponential of a negative argument only.
inline float softplus_of(float x) {
  return (x > 0.0F ? x : 0.0F) + log_one_plus(exp_of(-__builtin_fabsf(x)));
}

// erf(t) / t for |t| < 1; z is t * t.
inline float erf_ratio(float z) {
  float s = fused_multiply_add(7.853861353153693e-5F, z, -8.010193625184903e-4F);
  s = fused_multiply_add(s, z, 5.188327685732524e-3F);
  s = fused_multiply_add(s, z, -2.685381193529856e-2F);
  s = fused_multiply_add(s, z, 1.128358514861418e-1F);
  s = fused_multiply_add(s, z, -3.761262582423300e-1F);
  return fused_multiply_add(s, z, 1.128379165726710e+0F);
}

// erfc(a) for a >= 1; z is a * a.
inline float erfc_tail(float a, float z) {
  const float q = 1.0F / (a > 1.0F ? a : 1.0F);
  const float y = q * q;
  float m = fused_multiply_add(2.326819970068386e-2F, y, -1.387039388740657e-1F);
  m = fused_multiply_add(m, y, 3.687424674597105e-1F);
  m = fused_multiply_add(m, y, -5.824733027278666e-1F);
  m = fused_multiply_add(m, y, 6.210004621745983e-1F);
  m = fused_multiply_add(m, y, -4.944515323274145e-1F);
  m = fused_multiply_add(m, y, 3.404879937665872e-1F);
  m = fused_multiply_add(m, y, -2.741127028184656e-1F);
  m = fused_multiply_add(m, y, 5.638259427386472e-1F);
  float f = fused_multiply_add(-1.047766399936249e+1F, y, 1.297719955372516e+1F);
  f = fused_multiply_add(f, y, -7.495518717768503e+0F);
  f = fused_multiply_add(f, y, 2.921019019210786e+0F);
  f = fused_multiply_add(f, y, -1.015265279202700e+0F);
  f = fused_multiply_add(f, y, 4.218463358204948e-1F);
  f = fused_multiply_add(f, y, -2.820767439740514e-1F);
  f = fused_multiply_add(f, y, 5.641895067754075e-1F);
  return exp_of(-z) * q * (a < 2.0F ? m : f);
}

inline float erf_of(float x) {
  const float a = __builtin_fabsf(x), z = x * x;
  const float large = 1.0F - erfc_tail(a, z);
  return a < 1.0F ? x * erf_ratio(z) : x < 0.0F ? -large : large;
}

// The cumulative distribution function of the standard normal, 0.5 * erfc(-x / sqrt(2)).
inline float normal_cdf(float x) {
  const float t = x * 0.70710678118654752F;
  const float a = __builtin_fabsf(t);
  const float z = t * t;
  const float small = fused_multiply_add(0.5F * t, erf_ratio(z), 0.5F);
  const float tail = 0.5F * erfc_tail(a, z);
  const float large = t < 0 ? tail : 1.0F - tail;
  return a < 1.0F ? small : large;
}

// M. Giles, "Approximating the erfinv function", 2011.
inline float erfinv_of(float x) {
  const float w = -log1p_of(-x * x);
  const float c = w - 2.5F;
  float p = fused_multiply_add(2.81022636e-08F, c, 3.43273939e-07F);
  p = fused_multiply_add(p, c, -3.5233877e-06F);
  p = fused_multiply_add(p, c, -4.39150654e-06F);
  p = fused_multiply_add(p, c, 0.00021858087F);
  p = fused_multiply_add(p, c, -0.00125372503F);
  p = fused_multiply_add(p, c, -0.00417768164F);
  p = fused_multiply_add(p, c, 0.246640727F);
  p = fused_multiply_add(p, c, 1.50140941F);
  const float t = __builtin_sqrtf(w) - 3.0F;
  float q = fused_multiply_add(-0.000200214257F, t, 0.000100950558F);
  q = fused_multiply_add(q, t, 0.00134934322F);
  q = fused_multiply_add(q, t, -0.00367342844F);
  q = fused_multiply_add(q, t, 0.00573950773F);
  q = fused_multiply_add(q, t, -0.0076224613F);
  q = fused_multiply_add(q, t, 0.00943887047F);
  q = fused_multiply_add(q, t, 1.00167406F);
  q = fused_multiply_add(q, t, 2.83297682F);
  const float y = (w < 5.0F ? p : q) * x;
  return __builtin_fabsf(x) == 1.0F ? x * __builtin_inff() : y;
}
