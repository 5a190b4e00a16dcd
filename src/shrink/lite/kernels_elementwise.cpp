// Operators on single elements, softmax, and changes of type.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "shrink/lite/fixed_point.h"
#include "shrink/lite/kernels.h"

namespace plimsoll::engine::lite {
namespace {

// How two operands are repeated to the shape of the result.
struct Repeat {
  std::vector<int64_t> size, a, b;  // per dimension: elements, and the strides of the operands (0: repeated)
  int64_t elements = 1;

  template <typename Visit>
  void visit(const Visit& at) const {
    if (size.empty()) return at(0, 0, 0);
    std::vector<int64_t> index(size.size());
    const size_t last = size.size() - 1;
    int64_t ia = 0, ib = 0;
    for (int64_t i = 0; i < elements; i += size[last]) {
      for (int64_t j = 0; j < size[last]; ++j) at(i + j, ia + j * a[last], ib + j * b[last]);
      for (size_t d = last; d-- > 0;) {
        ia += a[d];
        ib += b[d];
        if (++index[d] < size[d]) break;
        ia -= a[d] * size[d];
        ib -= b[d] * size[d];
        index[d] = 0;
      }
    }
  }
};

Result<Repeat> read_repeat(const Prepare& p) {
  const auto &a = p.in(0).shape, &b = p.in(1).shape;
  const size_t rank = std::max(a.size(), b.size());
  Repeat r;
  r.size.resize(rank);
  r.a.resize(rank);
  r.b.resize(rank);
  int64_t sa = 1, sb = 1;
  for (size_t d = rank; d-- > 0;) {
    const int64_t na = d + a.size() >= rank ? a[d + a.size() - rank] : 1;
    const int64_t nb = d + b.size() >= rank ? b[d + b.size() - rank] : 1;
    if (na != nb && na != 1 && nb != 1) return fail(bad_operator(p, "its operands do not fit"));
    r.size[d] = std::max(na, nb);
    r.a[d] = na == 1 ? 0 : sa;
    r.b[d] = nb == 1 ? 0 : sb;
    sa *= na;
    sb *= nb;
    r.elements *= r.size[d];
  }
  PLIMSOLL_TRY(need_shape(p, r.size));
  return r;
}

template <typename T, typename Function>
Kernel binary_kernel(const Prepare& p, const Repeat& r, const Function& f) {
  const int32_t ai = p.at(0), bi = p.at(1), yi = p.out_at();
  return [=](const Buffers& buffers) {
    const T *a = buffers.as<T>(ai), *b = buffers.as<T>(bi);
    T* y = buffers.as<T>(yi);
    r.visit([&](int64_t i, int64_t ia, int64_t ib) { y[i] = f(a[ia], b[ib]); });
  };
}

// TensorFlow Lite's addition: both operands are brought to twice the larger scale, with 20 more bits.
Result<Kernel> add_int8(Prepare& p, const Repeat& r, int32_t sign) {
  const Quantization &qa = p.in(0).quantization, &qb = p.in(1).quantization, &qo = p.out().quantization;
  constexpr int kBits = 20;
  const double twice = 2 * std::max(double{qa.scale()}, double{qb.scale()});
  const Multiplier ma = multiplier_of(qa.scale() / twice), mb = multiplier_of(qb.scale() / twice),
                   mo = multiplier_of(twice / ((1 << kBits) * double{qo.scale()}));
  const int32_t za = qa.zero(), zb = qb.zero(), zo = qo.zero();
  const Clamp clamp = clamp_of(p.options().activation, qo);
  return binary_kernel<int8_t>(p, r, [=](int8_t a, int8_t b) {
    const int32_t x = multiply((a - za) * (1 << kBits), ma), y = multiply((b - zb) * (1 << kBits), mb);
    return clamp(int64_t{multiply(x + sign * y, mo)} + zo);
  });
}

template <Op op>
Result<Kernel> binary(Prepare& p) {
  PLIMSOLL_TRY(need_inputs(p, 2, 2));
  PLIMSOLL_ASSIGN(const Repeat r, read_repeat(p));
  const Activation activation = p.options().activation;
  if (p.floats() && p.in(1).type == Type::kFloat32) {
    return binary_kernel<float>(p, r, [=](float a, float b) {
      const float y = op == Op::kAdd       ? a + b
                      : op == Op::kSub     ? a - b
                      : op == Op::kMul     ? a * b
                      : op == Op::kDiv     ? a / b
                      : op == Op::kMaximum ? std::max(a, b)
                                           : std::min(a, b);
      return activated(y, activation);
    });
  }
  if (!p.int8() || p.in(1).type != Type::kInt8 || p.in(1).quantization.scales.size() != 1 ||
      activation == Activation::kTanh)
    return fail(not_supported(p, fmt::format("types {} and {}", name_of(p.in(0).type), name_of(p.in(1).type))));
  const Quantization &qa = p.in(0).quantization, &qb = p.in(1).quantization, &qo = p.out().quantization;
  if (op == Op::kAdd || op == Op::kSub) return add_int8(p, r, op == Op::kAdd ? 1 : -1);
  if (op != Op::kMul) return fail(not_supported(p, "int8"));
  const Multiplier factor = multiplier_of(double{qa.scale()} * double{qb.scale()} / double{qo.scale()});
  const int32_t za = qa.zero(), zb = qb.zero(), zo = qo.zero();
  const Clamp clamp = clamp_of(activation, qo);
  return binary_kernel<int8_t>(
      p, r, [=](int8_t a, int8_t b) { return clamp(int64_t{multiply((a - za) * (b - zb), factor)} + zo); });
}

float gelu(float x, bool approximate) {
  if (approximate) return 0.5F * x * (1 + std::tanh(0.7978845608F * (x + 0.044715F * x * x * x)));
  return 0.5F * x * (1 + std::erf(x * 0.70710678F));
}

// The curved functions; in int8, a table of all 256 values.
float curve(Op op, float x, const Options& o) {
  switch (op) {
    case Op::kLogistic:
      return 1 / (1 + std::exp(-x));
    case Op::kTanh:
      return std::tanh(x);
    case Op::kElu:
      return x < 0 ? std::expm1(x) : x;
    case Op::kGelu:
      return gelu(x, o.approximate);
    case Op::kExp:
      return std::exp(x);
    case Op::kLog:
      return std::log(x);
    case Op::kSqrt:
      return std::sqrt(x);
    case Op::kRsqrt:
      return 1 / std::sqrt(x);
    case Op::kSquare:
      return x * x;
    case Op::kAbs:
      return std::abs(x);
    case Op::kHardSwish:
      return x * std::min(std::max(x + 3, 0.0F), 6.0F) / 6;
    case Op::kRelu:
      return std::max(x, 0.0F);
    case Op::kRelu6:
      return std::min(std::max(x, 0.0F), 6.0F);
    case Op::kLeakyRelu:
      return x > 0 ? x : x * o.alpha;
    default:
      return x;
  }
}

bool straight(Op op) {
  return op == Op::kRelu || op == Op::kRelu6 || op == Op::kLeakyRelu;
}

template <Op op>
Result<Kernel> unary(Prepare& p) {
  PLIMSOLL_TRY(need_inputs(p, 1, 1));
  PLIMSOLL_TRY(need_shape(p, {p.in(0).shape.begin(), p.in(0).shape.end()}));
  const int32_t xi = p.at(0), yi = p.out_at();
  const int64_t n = p.out().elements();
  const Options options = p.options();
  if (p.floats())
    return Kernel([=](const Buffers& b) {
      const float* x = b.as<float>(xi);
      float* y = b.as<float>(yi);
      for (int64_t i = 0; i < n; ++i) y[i] = curve(op, x[i], options);
    });
  constexpr bool kHasTable = op == Op::kLogistic || op == Op::kTanh || op == Op::kElu || op == Op::kGelu;
  if (!p.int8() || (!kHasTable && !straight(op)))
    return fail(not_supported(p, fmt::format("type {}", name_of(p.in(0).type))));
  const Quantization &qx = p.in(0).quantization, &qo = p.out().quantization;
  const Activation kept = op == Op::kRelu    ? Activation::kRelu
                          : op == Op::kRelu6 ? Activation::kRelu6
                                             : Activation::kNone;
  const Clamp clamp = clamp_of(kept, qo);
  const Multiplier same = multiplier_of(double{qx.scale()} / double{qo.scale()}),
                   below = multiplier_of(double{qx.scale()} * std::abs(double{options.alpha}) / double{qo.scale()});
  std::array<int8_t, 256> table{};
  for (int32_t q = -128; q < 128; ++q) {
    const int32_t x = q - qx.zero();
    int8_t& y = table[static_cast<size_t>(q + 128)];
    if (!straight(op)) {
      y = quantized(curve(op, qx.scale() * static_cast<float>(x), options), qo.scale(), qo.zero());
    } else {
      const bool negative = op == Op::kLeakyRelu && x < 0;
      const int64_t scaled = negative ? (options.alpha < 0 ? -1 : 1) * int64_t{multiply(x, below)} : multiply(x, same);
      y = clamp(scaled + qo.zero());
    }
  }
  return Kernel([=](const Buffers& b) {
    const int8_t* x = b.as<int8_t>(xi);
    int8_t* y = b.as<int8_t>(yi);
    for (int64_t i = 0; i < n; ++i) y[i] = table[static_cast<size_t>(x[i] + 128)];
  });
}

Result<Kernel> softmax(Prepare& p) {
  PLIMSOLL_TRY(need_inputs(p, 1, 1));
  PLIMSOLL_TRY(need_shape(p, {p.in(0).shape.begin(), p.in(0).shape.end()}));
  if (p.in(0).shape.empty()) return fail(bad_operator(p, "its input has no dimensions"));
  const int32_t xi = p.at(0), yi = p.out_at();
  const int64_t k = p.in(0).shape.back(), rows = p.in(0).elements() / k;
  const bool floats = p.floats();
  if (!floats && !p.int8()) return fail(not_supported(p, fmt::format("type {}", name_of(p.in(0).type))));
  const float beta = p.options().beta * (floats ? 1 : p.in(0).quantization.scale());
  const float scale = floats ? 1 : p.out().quantization.scale();
  const int32_t zero = floats ? 0 : p.out().quantization.zero();
  p.scratch = k * 4;
  return Kernel([=](const Buffers& b) {
    auto* powers = reinterpret_cast<float*>(b.room);
    const auto run = [&](auto* x, auto* y, const auto& store) {
      for (int64_t r = 0; r < rows; ++r, x += k, y += k) {
        const auto most = *std::max_element(x, x + k);
        float sum = 0;
        for (int64_t i = 0; i < k; ++i) sum += powers[i] = std::exp(static_cast<float>(x[i] - most) * beta);
        for (int64_t i = 0; i < k; ++i) y[i] = store(powers[i] / sum);
      }
    };
    if (floats)
      run(b.as<const float>(xi), b.as<float>(yi), [](float v) { return v; });
    else
      run(b.as<const int8_t>(xi), b.as<int8_t>(yi), [=](float v) { return quantized(v, scale, zero); });
  });
}

Result<Kernel> quantize(Prepare& p) {
  PLIMSOLL_TRY(need_inputs(p, 1, 1));
  PLIMSOLL_TRY(need_shape(p, {p.in(0).shape.begin(), p.in(0).shape.end()}));
  const Tensor &x = p.in(0), &y = p.out();
  const auto integer = [](const Tensor& t) {
    return (t.type == Type::kInt8 || t.type == Type::kUInt8) && t.quantization.scales.size() == 1;
  };
  if (!integer(y) || (x.type != Type::kFloat32 && !integer(x))) return fail(not_supported(p, "these types"));
  const int32_t xi = p.at(0), yi = p.out_at(), zero = y.quantization.zero();
  const int64_t n = y.elements();
  const float scale = y.quantization.scale();
  const int32_t offset = y.type == Type::kUInt8 ? 128 : 0;  // uint8 is int8 and 128
  if (x.type == Type::kFloat32)
    return Kernel([=](const Buffers& b) {
      const float* from = b.as<float>(xi);
      auto* to = b.as<uint8_t>(yi);
      for (int64_t i = 0; i < n; ++i) to[i] = static_cast<uint8_t>(quantized(from[i], scale, zero - offset) + offset);
    });
  const Multiplier factor = multiplier_of(double{x.quantization.scale()} / double{scale});
  const bool wide = x.type == Type::kUInt8;
  const int32_t from_zero = x.quantization.zero();
  return Kernel([=](const Buffers& b) {
    const auto* from = b.as<uint8_t>(xi);
    auto* to = b.as<uint8_t>(yi);
    for (int64_t i = 0; i < n; ++i) {
      const int32_t q = wide ? from[i] : static_cast<int8_t>(from[i]);
      to[i] = static_cast<uint8_t>(Clamp()(int64_t{multiply(q - from_zero, factor)} + zero - offset) + offset);
    }
  });
}

float half_to_float(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000U} << 16, exponent = (bits >> 10) & 31U, fraction = bits & 1023U;
  float value = 0;
  if (exponent == 0) {
    value = std::ldexp(static_cast<float>(fraction), -24);
  } else {
    const uint32_t wide = (exponent == 31 ? 255U : exponent + 112) << 23 | fraction << 13;
    std::memcpy(&value, &wide, sizeof value);
  }
  return sign != 0 ? -value : value;
}

Result<Kernel> dequantize(Prepare& p) {
  PLIMSOLL_TRY(need_inputs(p, 1, 1));
  PLIMSOLL_TRY(need_shape(p, {p.in(0).shape.begin(), p.in(0).shape.end()}));
  const Tensor& x = p.in(0);
  const int32_t xi = p.at(0), yi = p.out_at();
  const int64_t n = x.elements();
  if (p.out().type != Type::kFloat32) return fail(not_supported(p, "these types"));
  if (x.type == Type::kFloat16)
    return Kernel([=](const Buffers& b) {
      for (int64_t i = 0; i < n; ++i) b.as<float>(yi)[i] = half_to_float(b.as<uint16_t>(xi)[i]);
    });
  if ((x.type != Type::kInt8 && x.type != Type::kUInt8) || x.quantization.empty())
    return fail(not_supported(p, "these types"));
  const Quantization q = x.quantization;
  const bool wide = x.type == Type::kUInt8;
  int64_t inner = 1;  // elements that share a scale
  const auto axis = static_cast<size_t>(q.axis);
  if (q.scales.size() > 1)
    for (size_t d = axis + 1; d < x.shape.size(); ++d) inner *= x.shape[d];
  else
    inner = n;
  return Kernel([=](const Buffers& b) {
    const auto* from = b.as<uint8_t>(xi);
    float* to = b.as<float>(yi);
    for (int64_t i = 0; i < n; ++i) {
      const auto s = static_cast<size_t>(i / inner) % q.scales.size();
      const int32_t v = wide ? from[i] : static_cast<int8_t>(from[i]);
      to[i] = q.scales[s] * static_cast<float>(v - static_cast<int32_t>(q.zeros[s]));
    }
  });
}

Result<Kernel> cast(Prepare& p) {
  PLIMSOLL_TRY(need_inputs(p, 1, 1));
  PLIMSOLL_TRY(need_shape(p, {p.in(0).shape.begin(), p.in(0).shape.end()}));
  const Type from = p.in(0).type, to = p.out().type;
  const int32_t xi = p.at(0), yi = p.out_at();
  const int64_t n = p.out().elements();
  if (from == Type::kInt32 && to == Type::kFloat32)
    return Kernel([=](const Buffers& b) {
      for (int64_t i = 0; i < n; ++i) b.as<float>(yi)[i] = static_cast<float>(b.as<int32_t>(xi)[i]);
    });
  if (from == Type::kFloat32 && to == Type::kInt32)
    return Kernel([=](const Buffers& b) {
      for (int64_t i = 0; i < n; ++i)
        b.as<int32_t>(yi)[i] =
            static_cast<int32_t>(std::fmin(std::fmax(b.as<float>(xi)[i], -2147483648.0F), 2147483520.0F));
    });
  return fail(not_supported(p, fmt::format("from {} to {}", name_of(from), name_of(to))));
}

constexpr std::array kKernels = {
    KernelRow{Op::kAdd, binary<Op::kAdd>},
    KernelRow{Op::kSub, binary<Op::kSub>},
    KernelRow{Op::kMul, binary<Op::kMul>},
    KernelRow{Op::kDiv, binary<Op::kDiv>},
    KernelRow{Op::kMaximum, binary<Op::kMaximum>},
    KernelRow{Op::kMinimum, binary<Op::kMinimum>},
    KernelRow{Op::kLogistic, unary<Op::kLogistic>},
    KernelRow{Op::kTanh, unary<Op::kTanh>},
    KernelRow{Op::kElu, unary<Op::kElu>},
    KernelRow{Op::kGelu, unary<Op::kGelu>},
    KernelRow{Op::kExp, unary<Op::kExp>},
    KernelRow{Op::kLog, unary<Op::kLog>},
    KernelRow{Op::kSqrt, unary<Op::kSqrt>},
    KernelRow{Op::kRsqrt, unary<Op::kRsqrt>},
    KernelRow{Op::kSquare, unary<Op::kSquare>},
    KernelRow{Op::kAbs, unary<Op::kAbs>},
    KernelRow{Op::kHardSwish, unary<Op::kHardSwish>},
    KernelRow{Op::kRelu, unary<Op::kRelu>},
    KernelRow{Op::kRelu6, unary<Op::kRelu6>},
    KernelRow{Op::kLeakyRelu, unary<Op::kLeakyRelu>},
    KernelRow{Op::kSoftmax, softmax},
    KernelRow{Op::kQuantize, quantize},
    KernelRow{Op::kDequantize, dequantize},
    KernelRow{Op::kCast, cast},
};

}  // namespace

std::span<const KernelRow> elementwise_kernels() {
  return kKernels;
}

}  // namespace plimsoll::engine::lite
