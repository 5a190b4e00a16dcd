// Conversions between float32 and the half-precision types, rounded to the nearest, ties to even. A NaN stays a NaN.

inline uint32_t bits_of(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline float from_bits(uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}

inline float of_bf16(uint16_t h) {
  return from_bits(uint32_t{h} << 16);
}
inline uint16_t to_bf16(float x) {
  const uint32_t bits = bits_of(x), rounded = (bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16;
  return static_cast<uint16_t>((bits & 0x7FFFFFFFU) > 0x7F800000U ? bits >> 16 | 0x40U : rounded);
}

inline float of_f16(uint16_t h) {
  const uint32_t sign = (h & 0x8000U) << 16, rest = h & 0x7FFFU;
  const uint32_t normal = (rest << 13) + (112U << 23), special = rest << 13 | 0x7F800000U;
  const uint32_t small = bits_of(static_cast<float>(static_cast<int32_t>(rest)) * 0x1p-24F);  // below 2^-14
  return from_bits(sign | (rest >= 0x7C00U ? special : rest >= 0x400U ? normal : small));
}
inline uint16_t to_f16(float x) {
  const uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000U, rest = bits & 0x7FFFFFFFU;
  const uint32_t normal = (rest + 0xFFFU + (rest >> 13 & 1U) - (112U << 23)) >> 13;
  // The last bit of a number in [0.5, 1) counts 2^-24, as that of a float16 below 2^-14 does.
  const uint32_t small = bits_of(from_bits(rest) + 0.5F) - bits_of(0.5F);
  const uint32_t finite = rest < 0x38800000U ? small : normal;
  const uint32_t number = rest >= 0x477FF000U ? 0x7C00U : finite;  // from 65520 on, infinity is nearest
  return static_cast<uint16_t>(sign | (rest > 0x7F800000U ? 0x7E00U : number));
}

void widen_bf16(const uint16_t* from, float* to, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i] = of_bf16(from[i]);
}
void narrow_bf16(const float* from, uint16_t* to, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i] = to_bf16(from[i]);
}

#if defined(__AVX512F__)
constexpr int64_t kHalves = 16;  // converted by one instruction; GCC 12 warns of the forms without a mask
inline void widen_some(const uint16_t* from, float* to) {
  _mm512_storeu_ps(to, _mm512_maskz_cvtph_ps(0xFFFF, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))));
}
inline void narrow_some(const float* from, uint16_t* to) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm512_maskz_cvtps_ph(0xFFFF, _mm512_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#elif defined(__F16C__)
constexpr int64_t kHalves = 8;
inline void widen_some(const uint16_t* from, float* to) {
  _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
}
inline void narrow_some(const float* from, uint16_t* to) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm256_cvtps_ph(_mm256_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#else
constexpr int64_t kHalves = 1;
inline void widen_some(const uint16_t* from, float* to) {
  *to = of_f16(*from);
}
inline void narrow_some(const float* from, uint16_t* to) {
  *to = to_f16(*from);
}
#endif

void widen_f16(const uint16_t* from, float* to, int64_t n) {
  int64_t i = 0;
  for (; i + kHalves <= n; i += kHalves) widen_some(from + i, to + i);
  for (; i < n; ++i) to[i] = of_f16(from[i]);
}
void narrow_f16(const float* from, uint16_t* to, int64_t n) {
  int64_t i = 0;
  for (; i + kHalves <= n; i += kHalves) narrow_some(from + i, to + i);
  for (; i < n; ++i) to[i] = to_f16(from[i]);
}
