// The CUDA code that each element-wise op and channel sum contributes to a fused kernel. The formulas are those of
// src/ops. A comment after a signature lists the node's inputs (and -> outputs); `?` marks optional ones.
#include <cmath>
#include <limits>

#include "backends/common/elementwise.h"
#include "backends/cuda/fused/writer.h"
#include "base/rounding.h"
#include "ops/predicates.h"
#include "ops/split.h"

namespace plimsoll::engine::cuda {
namespace {

std::string number(double value) {
  if (std::isnan(value)) return "NAN_F";
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

// What a piece of a batch adds to the index of its elements.
std::string after_rows_before(const FusedWriter& w, int64_t sample) {
  const int64_t rows = rows_before(w.attrs());
  return rows == 0 ? std::string() : fmt::format(" + {}LL", rows * sample);
}

void write_dropout(FusedWriter& w) {
  const double rate = w.attrs().real("rate");
  const Shape& shape = w.type(0).shape;
  const int64_t sample = shape.rank() == 0 ? 1 : shape.elements() / shape[0];
  const DropoutNoise noise(w.attrs(), sample);
  const std::string x = w.full(0), rng = w.raw_scalar(1), first = w.raw_scalar(2), words = w.fresh("w");
  const std::string call = fmt::format("{}u", static_cast<uint32_t>(w.attrs().integer("call")));
  // One Philox draw gives four adjacent decisions. If a thread's elements are whole groups of four, they share the
  // draw.
  const int drawn = w.width() % 4 == 0 && noise.inner == 1 && noise.size % 4 == 0 ? 4 : 1;
  const bool shares = noise.inner != 1 || noise.size != sample || noise.shared;
  const std::string sharing =
      shares ? fmt::format("shared_words<{}, {}>", drawn, noise.shared) : fmt::format("dropout_words<{}>", drawn);
  const std::string sizes = shares ? fmt::format(", {}LL, {}LL", noise.inner, noise.size) : "";
  w.before_row(
      fmt::format("        unsigned {0}[W];\n"
                  "#pragma unroll\n"
                  "        for (int k = 0; k < W; k += {1}) {6}({0} + k, {2}, {3}, at + k{8}, {4}LL, {5}{7});\n",
                  words, drawn, rng, first, sample, call, sharing, sizes, after_rows_before(w, sample)));
  w.result(0, fmt::format("unit({}[k]) >= {} ? {} * {} : 0.0f", words, number(rate), x, number(1.0 / (1.0 - rate))));
}

// The numbers of a thread's elements, by a function of the prelude. As in dropout, they share draws where they can.
void write_random(FusedWriter& w, const char* function) {  // rng, first
  const Shape shape(w.attrs().list("shape"));
  const int64_t sample = shape.elements() / shape[0];
  const std::string rng = w.raw_scalar(0), first = w.raw_scalar(1), numbers = w.fresh("n");
  const int drawn = w.width() % 4 == 0 && sample % 4 == 0 ? 4 : 1;
  w.before_row(
      fmt::format("        float {0}[W];\n"
                  "#pragma unroll\n"
                  "        for (int k = 0; k < W; k += {1}) {6}<{1}>({0} + k, {2}, {3}, at + k{7}, {4}LL, {5}u);\n",
                  numbers, drawn, rng, first, sample, static_cast<uint32_t>(random_call(w.attrs())), function,
                  after_rows_before(w, sample)));
  w.result(0, numbers + "[k]");
}

std::string rstd(FusedWriter& w, size_t var, size_t gamma) {
  const std::string r = fmt::format("rsqrtf({} + {})", w.vector(var), number(w.attrs().real("epsilon")));
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
  const std::string rows = number(1.0 / summed_rows(w.attrs(), w.rows()));
  const std::string mean_dy = w.derived_vector(fmt::format("{} * {}", w.vector(5), rows));
  const std::string slope = w.derived_vector(
      fmt::format("{} * rsqrtf({} + {}) * {}", w.vector(4), var, number(w.attrs().real("epsilon")), rows));
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
      {"channel_scale",
       [](FusedWriter& w) {
         const std::string x = w.full(0);
         w.result(0, x + " * " + w.vector(1));
       }},
      {"broadcast", [](FusedWriter& w) { w.result(0, w.repeated(0)); }},
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
      {"exp", [](FusedWriter& w) { unary(w, "expf({})"); }},
      {"expm1", [](FusedWriter& w) { unary(w, "expm1f({})"); }},
      {"log", [](FusedWriter& w) { unary(w, "logf({})"); }},
      {"log1p", [](FusedWriter& w) { unary(w, "log1pf({})"); }},
      {"softplus", [](FusedWriter& w) { unary(w, "softplus({})"); }},
      {"softsign", [](FusedWriter& w) { unary(w, "softsign({})"); }},
      {"erf", [](FusedWriter& w) { unary(w, "erff({})"); }},
      {"erfinv", [](FusedWriter& w) { unary(w, "erfinvf({})"); }},
      {"square", [](FusedWriter& w) { unary(w, "{0} * {0}"); }},
      {"sqrt", [](FusedWriter& w) { unary(w, "sqrtf({})"); }},
      {"rsqrt", [](FusedWriter& w) { unary(w, "1.0f / sqrtf({})"); }},
      {"reciprocal", [](FusedWriter& w) { unary(w, "1.0f / {}"); }},
      {"sin", [](FusedWriter& w) { unary(w, "sinf({})"); }},
      {"cos", [](FusedWriter& w) { unary(w, "cosf({})"); }},
      {"tan", [](FusedWriter& w) { unary(w, "tanf({})"); }},
      {"asin", [](FusedWriter& w) { unary(w, "asinf({})"); }},
      {"acos", [](FusedWriter& w) { unary(w, "acosf({})"); }},
      {"atan", [](FusedWriter& w) { unary(w, "atanf({})"); }},
      {"sinh", [](FusedWriter& w) { unary(w, "sinhf({})"); }},
      {"cosh", [](FusedWriter& w) { unary(w, "coshf({})"); }},
      {"asinh", [](FusedWriter& w) { unary(w, "asinhf({})"); }},
      {"acosh", [](FusedWriter& w) { unary(w, "acoshf({})"); }},
      {"atanh", [](FusedWriter& w) { unary(w, "atanhf({})"); }},
      {"stop_gradient", [](FusedWriter& w) { unary(w, "{}"); }},
      {"abs", [](FusedWriter& w) { unary(w, "fabsf({})"); }},
      {"sign", [](FusedWriter& w) { unary(w, "sign({})"); }},
      {"floor", [](FusedWriter& w) { unary(w, "floorf({})"); }},
      {"ceil", [](FusedWriter& w) { unary(w, "ceilf({})"); }},
      {"round", [](FusedWriter& w) { unary(w, "rintf({})"); }},
      {"trunc", [](FusedWriter& w) { unary(w, "truncf({})"); }},
      {"is_nan", [](FusedWriter& w) { unary(w, "{0} != {0} ? 1.0f : 0.0f"); }},
      {"is_inf", [](FusedWriter& w) { unary(w, "fabsf({}) == INFINITY_F ? 1.0f : 0.0f"); }},
      {"subtract", [](FusedWriter& w) { binary(w, "{} - {}"); }},
      {"divide", [](FusedWriter& w) { binary(w, "{} / {}"); }},
      {"maximum", [](FusedWriter& w) { binary(w, "larger({}, {})"); }},
      {"minimum", [](FusedWriter& w) { binary(w, "smaller({}, {})"); }},
      {"power", [](FusedWriter& w) { binary(w, "powf({}, {})"); }},
      {"atan2", [](FusedWriter& w) { binary(w, "atan2f({}, {})"); }},
      {"modulo", [](FusedWriter& w) { binary(w, "floor_mod({}, {})"); }},
      {"less", [](FusedWriter& w) { binary(w, "{} < {} ? 1.0f : 0.0f"); }},
      {"less_equal", [](FusedWriter& w) { binary(w, "{} <= {} ? 1.0f : 0.0f"); }},
      {"equal", [](FusedWriter& w) { binary(w, "{} == {} ? 1.0f : 0.0f"); }},
      {"select",
       [](FusedWriter& w) {
         const std::string condition = w.full(0), a = w.full(1), b = w.full(2);
         w.result(0, fmt::format("{} != 0.0f ? {} : {}", condition, a, b));
       }},
      {"full_like", [](FusedWriter& w) { w.result(0, number(w.attrs().real("value"))); }},
      {"dropout", write_dropout},
      {"random_uniform", [](FusedWriter& w) { write_random(w, "uniform_numbers"); }},
      {"random_normal", [](FusedWriter& w) { write_random(w, "normal_numbers"); }},
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

}  // namespace plimsoll::engine::cuda
