// The text at the start of every fused kernel: element types, and the functions that the ops' code (forms.cpp) calls.
#include "backends/cuda/fused/writer.h"

namespace plimsoll::engine::cuda {

// The text includes no CUDA headers, because NVRTC may be installed without them. Below sm_80 it converts bf16 by hand.
const char* fused_prelude() {
  return
#define PLIMSOLL_DEVICE_CODE(...) #__VA_ARGS__
#include "backends/cuda/fused/update_math.inl"
#undef PLIMSOLL_DEVICE_CODE
      R"cuda(
struct f16 { unsigned short bits; };
struct bf16 { unsigned short bits; };
#define INFINITY_F __int_as_float(0x7f800000)
#define NAN_F __int_as_float(0x7fffffff)

__device__ inline f16 to_f16(float x) { f16 h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h.bits) : "f"(x)); return h; }
__device__ inline bf16 to_bf16(float x) {
  bf16 h;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h.bits) : "f"(x));
#else
  const unsigned u = __float_as_uint(x);
  h.bits = x != x ? 0x7fff : static_cast<unsigned short>((u + 0x7fff + ((u >> 16) & 1)) >> 16);
#endif
  return h;
}
__device__ inline float to_float(f16 h) { float x; asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h.bits)); return x; }
__device__ inline float to_float(bf16 h) { return __uint_as_float(static_cast<unsigned>(h.bits) << 16); }
template <typename T> __device__ inline float to_float(T x) { return static_cast<float>(x); }
template <typename T> __device__ inline T from_float(float x);
template <> __device__ inline float from_float<float>(float x) { return x; }
template <> __device__ inline f16 from_float<f16>(float x) { return to_f16(x); }
template <> __device__ inline bf16 from_float<bf16>(float x) { return to_bf16(x); }

__device__ inline float relu(float x, float t, float s, float floor, float m) {
  const float above = x > m ? m : (x < floor ? floor : x);
  return x > t ? above : s * (x - t);
}
__device__ inline float relu_grad(float d, float v, float t, float s, float floor, float m) {
  const float above = v < floor || v >= m ? 0.0f : d;
  return v > t ? above : d * s;
}
__device__ inline float sigmoid(float x) {  // e^-x would overflow where sigmoid is still a number
  const float e = expf(-fabsf(x));
  return __fdividef(x >= 0.0f ? 1.0f : e, 1.0f + e);  // an exact division takes longer than all the rest of a silu
}
__device__ inline float sigmoid_grad(float d, float y) { return d * (y * (1.0f - y)); }
__device__ inline float tanh_grad(float d, float y) { return d * ((1.0f - y) * (1.0f + y)); }
__device__ inline float elu(float x, float alpha) { return x > 0.0f ? x : alpha * expm1f(x); }
__device__ inline float normal_cdf(float x) { return 0.5f * erfcf(-0.7071067811865476f * x); }
__device__ inline float gelu(float x) { return x * normal_cdf(x); }
__device__ inline float gelu_grad(float d, float x) {
  return d * (normal_cdf(x) + x * (0.3989422804014327f * expf(-0.5f * x * x)));
}
__device__ inline float normal_cdf_half(float x) { return 0.5f + 0.5f * erff(0.7071067811865476f * x); }
__device__ inline float gelu_half(float x) { return x * normal_cdf_half(x); }
__device__ inline float gelu_grad_half(float d, float x) {
  return d * (normal_cdf_half(x) + x * (0.3989422804014327f * __expf(-0.5f * x * x)));
}
__device__ inline float gelu_inner(float x) { return 1.5957691216057308f * (x + 0.044715f * x * x * x); }
__device__ inline float gelu_tanh(float x) { return x * sigmoid(gelu_inner(x)); }
__device__ inline float gelu_tanh_grad(float d, float x) {
  const float s = sigmoid(gelu_inner(x));
  return d * (s + x * (s * (1.0f - s) * (1.5957691216057308f * (1.0f + 0.134145f * x * x))));
}
__device__ inline float silu(float x) { return x * sigmoid(x); }
__device__ inline float silu_grad(float d, float x) {
  const float s = sigmoid(x);
  return d * (s * (1.0f + x * (1.0f - s)));
}
__device__ inline float hard_sigmoid(float x) {
  const float v = x + 3.0f;
  return (v < 0.0f ? 0.0f : v > 6.0f ? 6.0f : v) * (1.0f / 6.0f);
}
__device__ inline float hard_sigmoid_grad(float d, float y) { return y > 0.0f && y < 1.0f ? d * (1.0f / 6.0f) : 0.0f; }
__device__ inline float hard_silu(float x) { return x * hard_sigmoid(x); }
__device__ inline float hard_silu_grad(float d, float x) {
  return x <= -3.0f ? 0.0f : x >= 3.0f ? d : d * (x * (1.0f / 3.0f) + 0.5f);
}
__device__ inline float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }
__device__ inline float softsign(float x) { return x / (1.0f + fabsf(x)); }
__device__ inline float sign(float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x; }
__device__ inline float larger(float a, float b) { return a >= b || a != a ? a : b; }
__device__ inline float smaller(float a, float b) { return a <= b || a != a ? a : b; }
__device__ inline float floor_mod(float a, float b) {  // the result has the divisor's sign
  const float r = fmodf(a, b);
  return r != 0.0f && (r < 0.0f) != (b < 0.0f) ? r + b : r;
}
__device__ inline float clip(float x, float limit) { return x > limit ? limit : (x < -limit ? -limit : x); }
__device__ inline float l1_l2_grad(float w, float d, float l1, float twice_l2) {
  const float sign = w > 0.0f ? 1.0f : (w < 0.0f ? -1.0f : 0.0f);
  return d * (l1 * sign + twice_l2 * w);
}

__device__ inline float unit(unsigned word) { return static_cast<float>(word >> 8) * 0x1p-24f; }
__device__ inline void philox(unsigned long long key, unsigned (&c)[4]) {
  unsigned k0 = static_cast<unsigned>(key), k1 = static_cast<unsigned>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const unsigned h0 = __umulhi(0xD2511F53u, c[0]), l0 = 0xD2511F53u * c[0];
    const unsigned h1 = __umulhi(0xCD9E8D57u, c[2]), l1 = 0xCD9E8D57u * c[2];
    c[0] = h1 ^ c[1] ^ k0;
    c[1] = l1;
    c[2] = h0 ^ c[3] ^ k1;
    c[3] = l0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}
__device__ inline void draw(unsigned (&c)[4], const long long* rng, long long element, long long sample, unsigned call) {
  c[0] = static_cast<unsigned>(element / 4);
  c[1] = static_cast<unsigned>(sample);
  c[2] = call;
  c[3] = static_cast<unsigned>(rng[1]);
  philox(static_cast<unsigned long long>(rng[0]), c);
}
template <int N>
__device__ inline void take_words(unsigned* words, const unsigned (&c)[4], int lane) {
  if (N == 4) {
    for (int i = 0; i < 4; ++i) words[i] = c[i];
  } else {
    words[0] = lane == 0 ? c[0] : lane == 1 ? c[1] : lane == 2 ? c[2] : c[3];
  }
}
template <int N>
__device__ inline void dropout_words(unsigned* words, const long long* rng, const long long* first, long long at,
                                     long long sample, unsigned call) {
  const long long n = at / sample, e = at - n * sample;
  unsigned c[4];
  draw(c, rng, e, first[0] + n, call);
  take_words<N>(words, c, static_cast<int>(e % 4));
}
template <int N, bool kShared>
__device__ inline void shared_words(unsigned* words, const long long* rng, const long long* first, long long at,
                                    long long sample, unsigned call, long long inner, long long size) {
  const long long n = at / sample, e = (at - n * sample) / inner % size;
  unsigned c[4];
  draw(c, rng, e, kShared ? 0 : first[0] + n, call);
  take_words<N>(words, c, static_cast<int>(e % 4));
}
template <int N>
__device__ inline void uniform_numbers(float* numbers, const long long* rng, const long long* first, long long at,
                                       long long sample, unsigned call) {
  unsigned words[N];
  dropout_words<N>(words, rng, first, at, sample, call);
  for (int i = 0; i < N; ++i) numbers[i] = unit(words[i]);
}
__device__ inline void normal_pair(float& a, float& b, unsigned radius, unsigned turns) {
  const float r = sqrtf(-2.0f * logf(unit(radius) + 0x1p-24f));
  float s, c;
  sincospif(2.0f * unit(turns), &s, &c);
  a = r * c;
  b = r * s;
}
template <int N>
__device__ inline void normal_numbers(float* numbers, const long long* rng, const long long* first, long long at,
                                      long long sample, unsigned call) {
  const long long n = at / sample, e = at - n * sample;
  unsigned c[4];
  draw(c, rng, e, first[0] + n, call);
  if (N == 4) {
    normal_pair(numbers[0], numbers[1], c[0], c[1]);
    normal_pair(numbers[2], numbers[3], c[2], c[3]);
  } else {
    const int lane = static_cast<int>(e % 4);
    float a, b;
    normal_pair(a, b, lane < 2 ? c[0] : c[2], lane < 2 ? c[1] : c[3]);
    numbers[0] = lane % 2 == 0 ? a : b;
  }
}

template <typename T, int N>
struct alignas(sizeof(T) * N > 16 ? 16 : sizeof(T) * N) PackOf {
  T v[N];
};
)cuda";
}

}  // namespace plimsoll::engine::cuda
