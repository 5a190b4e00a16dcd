// The CUDA code that each element-wise op and channel sum contributes to a fused kernel. The formulas are those of
// src/ops. A comment after a signature lists the node's inputs (and -> outputs); `?` marks optional ones.
#include <cmath>
#include <limits>

#include "backends/common/elementwise.h"
#include "backends/cuda/fused/writer.h"
#include "base/rounding.h"
#include "ops/predicates.h"

namespace plimsoll::engine::cuda {
namespace {

std::string number(double value) {
  if (std::isinf(value)) return value > 0 ? "INFINITY_F" : "-INFINITY_F";
  return fmt::format("{:a}f", through_float32(value));
}
std::string wide_number(double value) {
  return fmt::format("{:a}", value);
}

void unary(FusedWriter& w, fmt::format_string<std::string&> format) {
  std::string x = w.full(0);
  w.result(0, fmt::format(format, x));
}
void binary(FusedWriter& w, fmt::format_string<std::string&, std::string&> format) {
  std::string a = w.full(0), b = w.full(1);
  w.result(0, fmt::format(format, a, b));
}

std::string relu_numbers(const Attrs& attrs) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const bool bounded = attrs.has("max_value");
  return fmt::format("{}, {}, {}, {}", number(attrs.real_or("threshold", 0)),
                     number(attrs.real_or("negative_slope", 0)), number(bounded ? 0.0 : -kInfinity),
                     number(bounded ? attrs.real("max_value") : kInfinity));
}

void write_relu(FusedWriter& w) {
  const std::string x = w.full(0);
  w.result(0, is_plain_relu(w.attrs()) ? fmt::format("{0} < 0.0f ? 0.0f : {0}", x)
                                       : fmt::format("relu({}, {})", x, relu_numbers(w.attrs())));
}

void write_relu_grad(FusedWriter& w) {
  const std::string dy = w.full(0), v = w.full(1);
  w.result(0, is_plain_relu(w.attrs()) ? fmt::format("{} > 0.0f ? {} : 0.0f", v, dy)
                                       : fmt::format("relu_grad({}, {}, {})", dy, v, relu_numbers(w.attrs())));
}

void write_dropout(FusedWriter& w) {
  const double rate = w.attrs().real("rate");
  const Shape& shape = w.type(0).shape;
  const int64_t sample = shape.rank() == 0 ? 1 : shape.elements() / shape[0];
  const std::string x = w.full(0), rng = w.raw_scalar(1), first = w.raw_scalar(2), words = w.fresh("w");
  const std::string call = fmt::format("{}u", static_cast<uint32_t>(w.attrs().integer("call")));
  // One Philox draw gives four adjacent elements. If a thread's elements are whole groups of four, they share the draw.
  const int drawn = w.width() % 4 == 0 && sample % 4 == 0 ? 4 : 1;
  w.before_row(fmt::format(
      "        unsigned {0}[W];\n"
      "#pragma unroll\n"
      "        for (int k = 0; k < W; k += {1}) dropout_words<{1}>({0} + k, {2}, {3}, at + k, {4}LL, {5});\n",
      words, drawn, rng, first, sample, call));
  w.result(0, fmt::format("unit({}[k]) >= {} ? {} * {} : 0.0f", words, number(rate), x, number(1.0 / (1.0 - rate))));
}

std::string rstd(FusedWriter& w, size_t var, size_t gamma) {
  const std::string r = fmt::format("(1.0f / sqrtf({} + {}))", w.vector(var), number(w.attrs().real("epsilon")));
  return w.attrs().flag("scale") ? fmt::format("{} * {}", r, w.vector(gamma)) : r;
}

void write_batch_norm_apply(FusedWriter& w) {  // x, mean, var, gamma?, beta?
  const std::string x = w.full(0), mean = w.vector(1), factor = w.derived_vector(rstd(w, 2, 3));
  const std::string offset =
      w.attrs().flag("center") ? " + " + w.vector(w.attrs().flag("scale") ? 4 : 3) : std::string();
  w.result(0, fmt::format("({} - {}) * {}{}", x, mean, factor, offset));
}

void write_batch_norm_input_grad(FusedWriter& w) {  // dy, x, mean, var, dgamma, dbeta, gamma?
  const std::string dy = w.full(0), x = w.full(1), mean = w.vector(2), var = w.vector(3);
  const std::string rows = number(1.0 / w.rows());
  const std::string mean_dy = w.derived_vector(fmt::format("{} * {}", w.vector(5), rows));
  const std::string slope = w.derived_vector(
      fmt::format("{} / sqrtf({} + {}) * {}", w.vector(4), var, number(w.attrs().real("epsilon")), rows));
  const std::string factor = w.derived_vector(rstd(w, 3, 6));
  w.result(0, fmt::format("({} - {} - ({} - {}) * {}) * {}", dy, mean_dy, x, mean, slope, factor));
}

void write_batch_norm_frozen_grad(FusedWriter& w) {  // dy, var, gamma?
  const std::string dy = w.full(0);
  w.result(0, fmt::format("{} * {}", dy, w.derived_vector(rstd(w, 1, 2))));
}

void write_reduce_to(FusedWriter& w) {
  const int sum = w.sum(w.full(0));
  w.result_of_sums(0, fmt::format("total{}", sum));
}

void write_batch_norm_grad_stats(FusedWriter& w) {  // dy, x, mean, var -> dgamma, dbeta
  const std::string dy = w.full(0), x = w.full(1), mean = w.vector(2);
  const int centered = w.sum(fmt::format("{} * ({} - {})", dy, x, mean));
  const int plain = w.sum(dy);
  w.result_of_sums(0, fmt::format("total{} / sqrt(static_cast<double>(to_float({}[c])) + {})", centered,
                                  w.raw_scalar(3), wide_number(w.attrs().real("epsilon"))));
  w.result_of_sums(1, fmt::format("total{}", plain));
}

// Moments about the first row, so that the difference of squares does not cancel.
void write_batch_norm_stats(FusedWriter& w) {
  const std::string x = w.full(0), from = w.raw_scalar(0);
  const std::string shift = w.derived_vector(fmt::format("to_float({}[c0 + k])", from));
  const int sum = w.sum(fmt::format("{} - {}", x, shift));
  const int squares = w.sum(fmt::format("({0} - {1}) * ({0} - {1})", x, shift));
  const std::string mean = fmt::format("total{} / rows", sum);
  w.result_of_sums(0, fmt::format("to_float({}[c]) + {}", from, mean));
  w.result_of_sums(1, fmt::format("fmax(0.0, total{} / rows - ({}) * ({}))", squares, mean, mean));
}

void write_sgd(FusedWriter& w) {  // w, g, learning_rate, momentum state?
  const std::string x = w.full(0), g = w.full(1), rate = w.scalar(2);
  const std::string decayed = fmt::format("decayed({}, {}, {})", x, number(w.attrs().real_or("weight_decay", 0)), rate);
  if (w.node().inputs.size() < 4) {
    w.result(0, fmt::format("{} - {} * {}", decayed, g, rate));
    return;
  }
  const std::string momentum = number(w.attrs().real("momentum"));
  const auto pushed = [&](const std::string& state) {
    return fmt::format("sgd_state({}, {}, {}, {})", state, g, momentum, rate);
  };
  const std::string state = pushed(w.full(3));
  w.result(0, fmt::format("{} + {}", decayed, w.attrs().flag("nesterov") ? pushed(state) : state));
  w.result(1, state);
}

void write_adam(FusedWriter& w) {  // w, g, m, v, learning_rate, iteration
  const Attrs& attrs = w.attrs();
  const double b1 = attrs.real("beta_1"), b2 = attrs.real("beta_2");
  const std::string x = w.full(0), g = w.full(1), m = w.full(2), v = w.full(3), rate = w.raw_scalar(4);
  const std::string alpha =
      w.derived_scalar(fmt::format("adam_rate({}[0], {}[0], {}, {})", rate, w.raw_scalar(5),
                                   wide_number(through_float32(b1)), wide_number(through_float32(b2))));
  const std::string new_m = fmt::format("adam_moment({}, {}, {})", m, g, number(1.0 - b1));
  const std::string new_v = fmt::format("adam_moment({0}, {1} * {1}, {2})", v, g, number(1.0 - b2));
  const double decay = attrs.real_or("weight_decay", 0);
  const std::string decayed = decay == 0 ? x : fmt::format("decayed({}, {}, {})", x, number(decay), w.scalar(4));
  w.result(1, new_m);
  w.result(2, new_v);
  w.result(0,
           fmt::format("adam_weight({}, {}, {}, {}, {})", decayed, new_m, new_v, alpha, number(attrs.real("epsilon"))));
}

void write_keep_if(FusedWriter& w) {  // new value, old value, count of non-finite gradient elements
  const std::string fresh = w.full(0), old = w.full(1);
  w.result(0, fmt::format("{} == 0.0f ? {} : {}", w.scalar(2), fresh, old));
}

// Every element-wise op and channel sum of this backend. There is no other list.
const std::map<std::string, FusedForm>& forms() {
  static const std::map<std::string, FusedForm> kForms = {
      {"bias_add",
       [](FusedWriter& w) {
         const std::string x = w.full(0);
         w.result(0, x + " + " + w.vector(1));
       }},
      {"add", [](FusedWriter& w) { binary(w, "{} + {}"); }},
      {"multiply", [](FusedWriter& w) { binary(w, "{} * {}"); }},
      {"scale",
       [](FusedWriter& w) {
         const std::string x = w.full(0);
         w.result(0, x + " * " + w.scalar(1));
       }},
      {"affine",
       [](FusedWriter& w) {
         w.result(0, fmt::format("{} * {} + {}", w.full(0), number(w.attrs().real("scale")),
                                 number(w.attrs().real("offset"))));
       }},
      {"cast", [](FusedWriter& w) { w.result(0, w.full(0)); }},
      {"relu", write_relu},
      {"relu_grad", write_relu_grad},
      {"sigmoid", [](FusedWriter& w) { unary(w, "sigmoid({})"); }},
      {"sigmoid_grad", [](FusedWriter& w) { binary(w, "sigmoid_grad({}, {})"); }},
      {"tanh", [](FusedWriter& w) { unary(w, "tanhf({})"); }},
      {"tanh_grad", [](FusedWriter& w) { binary(w, "tanh_grad({}, {})"); }},
      {"elu",
       [](FusedWriter& w) { w.result(0, fmt::format("elu({}, {})", w.full(0), number(w.attrs().real("alpha")))); }},
      {"elu_grad",
       [](FusedWriter& w) {
         const std::string dy = w.full(0), y = w.full(1);
         w.result(0, fmt::format("{0} > 0.0f ? {1} : {1} * ({0} + {2})", y, dy, number(w.attrs().real("alpha"))));
       }},
      {"gelu",
       [](FusedWriter& w) {
         // The tails of the normal distribution matter only in float32; a half-precision result is rounded more
         // coarsely.
         if (w.attrs().flag("approximate")) return unary(w, "gelu_tanh({})");
         is_half(w.output_dtype(0)) ? unary(w, "gelu_half({})") : unary(w, "gelu({})");
       }},
      {"gelu_grad",
       [](FusedWriter& w) {
         if (w.attrs().flag("approximate")) return binary(w, "gelu_tanh_grad({}, {})");
         is_half(w.output_dtype(0)) ? binary(w, "gelu_grad_half({}, {})") : binary(w, "gelu_grad({}, {})");
       }},
      {"silu", [](FusedWriter& w) { unary(w, "silu({})"); }},
      {"silu_grad", [](FusedWriter& w) { binary(w, "silu_grad({}, {})"); }},
      {"hard_sigmoid", [](FusedWriter& w) { unary(w, "hard_sigmoid({})"); }},
      {"hard_sigmoid_grad", [](FusedWriter& w) { binary(w, "hard_sigmoid_grad({}, {})"); }},
      {"hard_silu", [](FusedWriter& w) { unary(w, "hard_silu({})"); }},
      {"hard_silu_grad", [](FusedWriter& w) { binary(w, "hard_silu_grad({}, {})"); }},
      {"dropout", write_dropout},
      {"batch_norm_apply", write_batch_norm_apply},
      {"batch_norm_input_grad", write_batch_norm_input_grad},
      {"batch_norm_frozen_grad", write_batch_norm_frozen_grad},
      {"batch_norm_grad_stats", write_batch_norm_grad_stats},
      {"batch_norm_stats", write_batch_norm_stats},
      {"reduce_to", write_reduce_to},
      {"moving_average",
       [](FusedWriter& w) {
         const double momentum = w.attrs().real("momentum");
         const std::string moving = w.full(0), batch = w.full(1);
         w.result(0, fmt::format("{} * {} + {} * {}", moving, number(momentum), batch, number(1.0 - momentum)));
       }},
      {"clip_value",
       [](FusedWriter& w) { w.result(0, fmt::format("clip({}, {})", w.full(0), number(w.attrs().real("limit")))); }},
      {"l1_l2_grad",
       [](FusedWriter& w) {
         const std::string x = w.full(0);
         w.result(0, fmt::format("l1_l2_grad({}, {}, {}, {})", x, w.scalar(1), number(w.attrs().real_or("l1", 0)),
                                 number(2.0 * w.attrs().real_or("l2", 0))));
       }},
      {"sgd", write_sgd},
      {"adam", write_adam},
      {"unscale",
       [](FusedWriter& w) {
         const std::string g = w.full(0);
         w.result(0, g + " / " + w.scalar(1));
       }},
      {"keep_if", write_keep_if},
  };
  return kForms;
}

}  // namespace

FusedForm fused_form(const std::string& op) {
  const auto found = forms().find(op);
  return found == forms().end() ? nullptr : found->second;
}

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
  return (x >= 0.0f ? 1.0f : e) / (1.0f + e);
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
  return (v < 0.0f ? 0.0f : v > 6.0f ? 6.0f : v) / 6.0f;
}
__device__ inline float hard_sigmoid_grad(float d, float y) { return y > 0.0f && y < 1.0f ? d / 6.0f : 0.0f; }
__device__ inline float hard_silu(float x) { return x * hard_sigmoid(x); }
__device__ inline float hard_silu_grad(float d, float x) {
  return x <= -3.0f ? 0.0f : x >= 3.0f ? d : d * (x / 3.0f + 0.5f);
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
template <int N>
__device__ inline void dropout_words(unsigned* words, const long long* rng, const long long* first, long long at,
                                     long long sample, unsigned call) {
  const long long n = at / sample, e = at - n * sample;
  unsigned c[4] = {static_cast<unsigned>(e / 4), static_cast<unsigned>(first[0] + n), call,
                   static_cast<unsigned>(rng[1])};
  philox(static_cast<unsigned long long>(rng[0]), c);
  if (N == 4) {
    for (int i = 0; i < 4; ++i) words[i] = c[i];
  } else {
    const int lane = static_cast<int>(e % 4);
    words[0] = lane == 0 ? c[0] : lane == 1 ? c[1] : lane == 2 ? c[2] : c[3];
  }
}

template <typename T, int N>
struct alignas(sizeof(T) * N > 16 ? 16 : sizeof(T) * N) PackOf {
  T v[N];
};
)cuda";
}

}  // namespace plimsoll::engine::cuda
