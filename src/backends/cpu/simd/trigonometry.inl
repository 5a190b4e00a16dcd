// Circular and hyperbolic functions and their inverses as branch-free code that the compiler vectorises. Polynomials
// follow Cephes (S. Moshier, sinf.c, asinf.c, atanf.c, sinhf.c). tests/backends/math_test.cpp prints and bounds the
// errors.

// x = n * pi/2 + r with |r| <= pi/4, in double, so that r is exact to a float's last bits up to |x| = 1e9. (Above that
// neighbouring floats are further apart than a period.) Infinities give NaN.
struct Quadrant {
  float number;  // n modulo 4
  float r;
};
inline Quadrant quadrant_of(float x) {
  constexpr double kRound = 6755399441055744.0;  // adding 1.5 * 2^52 rounds to an integer
  const auto wide = static_cast<double>(x);
  const double n = (wide * 0.63661977236758134308 + kRound) - kRound;
  const double r = (wide - n * 1.57079632673412561417) - n * 6.07710050650619224932e-11;
  const double fours = ((n * 0.25 - 0.375) + kRound) - kRound;  // floor(n / 4)
  return {static_cast<float>(n - 4.0 * fours), static_cast<float>(r)};
}
inline float sine_of_reduced(float r) {
  const float z = r * r;
  float p = fused_multiply_add(-1.9515295891e-4F, z, 8.3321608736e-3F);
  p = fused_multiply_add(p, z, -1.6666654611e-1F);
  return fused_multiply_add(p * z, r, r);
}
inline float cosine_of_reduced(float r) {
  const float z = r * r;
  float p = fused_multiply_add(2.443315711809948e-5F, z, -1.388731625493765e-3F);
  p = fused_multiply_add(p, z, 4.166664568298827e-2F);
  return fused_multiply_add(p * z, z, fused_multiply_add(-0.5F, z, 1.0F));
}
inline float sin_of(float x) {
  const Quadrant q = quadrant_of(x);
  const float s = sine_of_reduced(q.r), c = cosine_of_reduced(q.r);
  const float y = q.number == 1.0F || q.number == 3.0F ? c : s;
  return q.number >= 2.0F ? -y : y;
}
inline float cos_of(float x) {
  const Quadrant q = quadrant_of(x);
  const float s = sine_of_reduced(q.r), c = cosine_of_reduced(q.r);
  const float y = q.number == 1.0F || q.number == 3.0F ? s : c;
  return q.number == 1.0F || q.number == 2.0F ? -y : y;
}
inline float tan_of(float x) {
  const Quadrant q = quadrant_of(x);
  const float s = sine_of_reduced(q.r), c = cosine_of_reduced(q.r);
  return q.number == 1.0F || q.number == 3.0F ? -c / s : s / c;
}

constexpr float kHalfPi = 1.57079632679489662F, kPi = 3.14159265358979324F;

// asin(s) for 0 <= s <= 0.5; z is s * s.
inline float asin_series(float s, float z) {
  float p = fused_multiply_add(4.2163199048e-2F, z, 2.4181311049e-2F);
  p = fused_multiply_add(p, z, 4.5470025998e-2F);
  p = fused_multiply_add(p, z, 7.4953002686e-2F);
  p = fused_multiply_add(p, z, 1.6666752422e-1F);
  return fused_multiply_add(p * z, s, s);
}
// Above 0.5: asin(a) = pi/2 - 2 asin(sqrt((1 - a) / 2)).
inline float asin_of(float x) {
  const float a = __builtin_fabsf(x);
  const float z = a > 0.5F ? 0.5F * (1.0F - a) : a * a;
  const float p = asin_series(a > 0.5F ? __builtin_sqrtf(z) : a, z);
  const float y = a > 0.5F ? kHalfPi - 2.0F * p : p;
  return x < 0.0F ? -y : y;
}
inline float acos_of(float x) {
  const float a = __builtin_fabsf(x);
  const float z = a > 0.5F ? 0.5F * (1.0F - a) : a * a;
  const float p = asin_series(a > 0.5F ? __builtin_sqrtf(z) : a, z);
  const float middle = kHalfPi - (x < 0.0F ? -p : p);
  return a > 0.5F ? (x < 0.0F ? kPi - 2.0F * p : 2.0F * p) : middle;
}

inline float atan_of(float x) {
  const float a = __builtin_fabsf(x);
  const bool large = a > 2.414213562373095F, middle = a > 0.4142135623730950F;
  const float t = large ? -1.0F / a : middle ? (a - 1.0F) / (a + 1.0F) : a;
  const float base = large ? kHalfPi : middle ? 0.5F * kHalfPi : 0.0F;
  const float z = t * t;
  float p = fused_multiply_add(8.05374449538e-2F, z, -1.38776856032e-1F);
  p = fused_multiply_add(p, z, 1.99777106478e-1F);
  p = fused_multiply_add(p, z, -3.33329491539e-1F);
  const float y = base + fused_multiply_add(p * z, t, t);
  return x < 0.0F ? -y : y;
}
// The angle of the point (x, y), from the angle inside its octant. Signs of zeros count, as in C.
inline float atan2_of(float y, float x) {
  const float ax = __builtin_fabsf(x), ay = __builtin_fabsf(y);
  const float high = ax > ay ? ax : ay, low = ax > ay ? ay : ax;
  const float ratio = low == high ? (high == 0.0F ? 0.0F : 1.0F) : low / high;
  const float octant = atan_of(ratio);
  const float quadrant = ay > ax ? kHalfPi - octant : octant;
  const float half = __builtin_copysignf(1.0F, x) < 0.0F ? kPi - quadrant : quadrant;
  return x != x || y != y ? x + y : __builtin_copysignf(half, y);
}

// The exponential of half the argument is squared, because exp(|x|) overflows before sinh(x) does.
inline float sinh_of(float x) {
  const float a = __builtin_fabsf(x), z = x * x;
  float p = fused_multiply_add(2.03721912945e-4F, z, 8.33028376239e-3F);
  p = fused_multiply_add(p, z, 1.66667160211e-1F);
  const float small = fused_multiply_add(p * z, x, x);
  const float e = exp_of(0.5F * a);
  const float large = 0.5F * e * e - 0.5F / e / e;
  return a < 1.0F ? small : x < 0.0F ? -large : large;
}
inline float cosh_of(float x) {
  const float e = exp_of(0.5F * __builtin_fabsf(x));
  return 0.5F * e * e + 0.5F / e / e;
}

// For large arguments the square would overflow, and the result is log(2x).
constexpr float kSquareIsLarge = 1e10F, kLog2 = 0.693147180559945309F;
inline float asinh_of(float x) {
  const float a = __builtin_fabsf(x), s = a < kSquareIsLarge ? a : 0.0F;
  const float near = log1p_of(s + s * s / (1.0F + __builtin_sqrtf(s * s + 1.0F)));
  const float y = a < kSquareIsLarge ? near : log_any(a) + kLog2;
  return x < 0.0F ? -y : y;
}
inline float acosh_of(float x) {
  const float t = (x < kSquareIsLarge ? x : 1.0F) - 1.0F;
  const float near = log1p_of(t + __builtin_sqrtf(t * (t + 2.0F)));
  const float y = x < kSquareIsLarge ? near : log_any(x) + kLog2;
  return x < 1.0F ? __builtin_nanf("") : y;
}
inline float atanh_of(float x) {
  const float a = __builtin_fabsf(x);
  const float y = 0.5F * log1p_of(2.0F * a / (1.0F - a));
  return x < 0.0F ? -y : y;
}

// Library calls, one element at a time.
inline float power_of(float a, float b) {
  return __builtin_powf(a, b);
}
inline float floor_mod(float a, float b) {
  const float r = __builtin_fmodf(a, b);
  return r != 0.0F && (r < 0.0F) != (b < 0.0F) ? r + b : r;
}
