// Our own exp, tanh, normal distribution and related functions against double, over many floats, for every instruction
// set of this machine.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "backends/cpu/simd/simd.h"

namespace plimsoll::engine::cpu {
namespace {

std::vector<const Simd*> usable() {
  std::vector<const Simd*> list = {&baseline::kSimd};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) list.push_back(&avx2::kSimd);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    list.push_back(&avx512::kSimd);
  return list;
}

std::vector<float> apply(const Simd& simd, TileOp op, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  TileCall call{};
  const float constants[4] = {1, 0, 0, 0};
  call.in[0] = x.data();
  call.out[0] = y.data();
  call.n = static_cast<int64_t>(x.size());
  call.f = constants;
  simd.tile[static_cast<size_t>(op)](call);
  return y;
}

// Every 997th float of both signs up to `most`, or every `step`th.
std::vector<float> floats_up_to(float most, uint32_t step = 997) {
  std::vector<float> list;
  for (uint32_t bits = 0; bits <= std::bit_cast<uint32_t>(most); bits += step) {
    list.push_back(std::bit_cast<float>(bits));
    list.push_back(-std::bit_cast<float>(bits));
  }
  return list;
}

double ulp(double x) {
  const double a = std::max(std::fabs(x), static_cast<double>(std::numeric_limits<float>::min()));
  return std::ldexp(1.0, static_cast<int>(std::floor(std::log2(a))) - 23);
}

struct Function {
  const char* name;
  TileOp op;
  double (*exact)(double);
  double most_ulps;
};

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}
double gelu(double x) {
  return 0.5 * x * std::erfc(-x * std::sqrt(0.5));
}

TEST(CpuMath, StaysWithinAFewUlps) {
  const Function functions[] = {{"sigmoid", TileOp::k_sigmoid, sigmoid, 3.0},
                                {"tanh", TileOp::k_tanh, [](double x) { return std::tanh(x); }, 3.0},
                                {"silu", TileOp::k_silu, [](double x) { return x * sigmoid(x); }, 4.0},
                                {"elu", TileOp::k_elu, [](double x) { return x > 0 ? x : std::expm1(x); }, 5.0}};
  const auto x = floats_up_to(80.0F);
  for (const Simd* simd : usable()) {
    for (const Function& f : functions) {
      const auto y = apply(*simd, f.op, x);
      double worst = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const double exact = f.exact(static_cast<double>(x[i]));
        worst = std::max(worst, std::fabs(static_cast<double>(y[i]) - exact) / ulp(exact));
      }
      fmt::print("{:8} {:8} {:.2f} ULP\n", simd->name, f.name, worst);
      EXPECT_LE(worst, f.most_ulps) << simd->name << " " << f.name;
    }
  }
}

struct Ranged {
  Function function;
  float most;       // arguments of both signs up to this
  float least = 0;  // and of at least this magnitude
  bool negative = true;
};

double softplus(double x) {
  return std::log1p(std::exp(-std::fabs(x))) + std::max(x, 0.0);
}

// Each function over its domain; bounds are somewhat above what was measured.
TEST(CpuMath, ElementaryFunctionsStayWithinAFewUlps) {
  const Ranged functions[] = {
      {{"exp", TileOp::k_exp, [](double x) { return std::exp(x); }, 2.0}, 87.0F},
      {{"expm1", TileOp::k_expm1, [](double x) { return std::expm1(x); }, 4.0}, 87.0F},
      {{"log", TileOp::k_log, [](double x) { return std::log(x); }, 2.0}, 3e38F, 1e-38F, false},
      {{"log1p", TileOp::k_log1p, [](double x) { return std::log1p(x); }, 3.0}, 3e38F, 0, false},
      {{"log1p", TileOp::k_log1p, [](double x) { return std::log1p(x); }, 4.0}, 0.9F},
      {{"softplus", TileOp::k_softplus, softplus, 4.0}, 80.0F},
      {{"erf", TileOp::k_erf, [](double x) { return std::erf(x); }, 3.0}, 10.0F},
      {{"sin", TileOp::k_sin, [](double x) { return std::sin(x); }, 2.0}, 3.0F},
      {{"cos", TileOp::k_cos, [](double x) { return std::cos(x); }, 2.0}, 1.5F},
      {{"tan", TileOp::k_tan, [](double x) { return std::tan(x); }, 4.0}, 3.0F},
      {{"asin", TileOp::k_asin, [](double x) { return std::asin(x); }, 4.0}, 1.0F},
      {{"acos", TileOp::k_acos, [](double x) { return std::acos(x); }, 4.0}, 0.99F},
      {{"atan", TileOp::k_atan, [](double x) { return std::atan(x); }, 4.0}, 1e6F},
      {{"sinh", TileOp::k_sinh, [](double x) { return std::sinh(x); }, 5.0}, 89.0F},
      {{"cosh", TileOp::k_cosh, [](double x) { return std::cosh(x); }, 5.0}, 89.0F},
      {{"asinh", TileOp::k_asinh, [](double x) { return std::asinh(x); }, 6.0}, 3e38F},
      {{"acosh", TileOp::k_acosh, [](double x) { return std::acosh(x); }, 6.0}, 3e38F, 1.0F, false},
      {{"atanh", TileOp::k_atanh, [](double x) { return std::atanh(x); }, 6.0}, 0.99F}};
  for (const Simd* simd : usable()) {
    for (const Ranged& r : functions) {
      auto x = floats_up_to(r.most, 9973);
      std::erase_if(x, [&](float v) { return std::fabs(v) < r.least || (v < 0 && !r.negative); });
      const auto y = apply(*simd, r.function.op, x);
      double worst = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const double exact = r.function.exact(static_cast<double>(x[i]));
        worst = std::max(worst, std::fabs(static_cast<double>(y[i]) - exact) / ulp(exact));
      }
      fmt::print("{:8} {:8} {:.2f} ULP\n", simd->name, r.function.name, worst);
      EXPECT_LE(worst, r.function.most_ulps) << simd->name << " " << r.function.name;
    }
  }
}

// Far from 0, where sin and cos cross zero, only the absolute error matters.
TEST(CpuMath, SineAndCosineReduceLargeArguments) {
  const auto x = floats_up_to(1e8F);
  for (const Simd* simd : usable()) {
    const auto s = apply(*simd, TileOp::k_sin, x), c = apply(*simd, TileOp::k_cos, x);
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const auto wide = static_cast<double>(x[i]);
      worst = std::max(worst, std::fabs(static_cast<double>(s[i]) - std::sin(wide)));
      worst = std::max(worst, std::fabs(static_cast<double>(c[i]) - std::cos(wide)));
    }
    fmt::print("{:8} sin, cos up to 1e8: {:.2g}\n", simd->name, worst);
    EXPECT_LE(worst, 0x1p-23) << simd->name;
  }
}

// At the ends of the domains, and for infinities and NaN, what the C library gives.
TEST(CpuMath, SpecialArgumentsGiveWhatTheLibraryGives) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double arguments[] = {0, 1, -1, 2, -2, 1e30, -1e30, 1e-40, kInfinity, -kInfinity, std::nan("")};
  const Function functions[] = {{"exp", TileOp::k_exp, [](double x) { return std::exp(x); }, 4},
                                {"expm1", TileOp::k_expm1, [](double x) { return std::expm1(x); }, 4},
                                {"log", TileOp::k_log, [](double x) { return std::log(x); }, 4},
                                {"log1p", TileOp::k_log1p, [](double x) { return std::log1p(x); }, 4},
                                {"softplus", TileOp::k_softplus, softplus, 4},
                                {"erf", TileOp::k_erf, [](double x) { return std::erf(x); }, 4},
                                {"sqrt", TileOp::k_sqrt, [](double x) { return std::sqrt(x); }, 1},
                                {"asin", TileOp::k_asin, [](double x) { return std::asin(x); }, 4},
                                {"acos", TileOp::k_acos, [](double x) { return std::acos(x); }, 4},
                                {"atan", TileOp::k_atan, [](double x) { return std::atan(x); }, 4},
                                {"sinh", TileOp::k_sinh, [](double x) { return std::sinh(x); }, 5},
                                {"cosh", TileOp::k_cosh, [](double x) { return std::cosh(x); }, 5},
                                {"asinh", TileOp::k_asinh, [](double x) { return std::asinh(x); }, 6},
                                {"acosh", TileOp::k_acosh, [](double x) { return std::acosh(x); }, 6},
                                {"atanh", TileOp::k_atanh, [](double x) { return std::atanh(x); }, 6},
                                {"floor", TileOp::k_floor, [](double x) { return std::floor(x); }, 0},
                                {"round", TileOp::k_round, [](double x) { return std::nearbyint(x); }, 0}};
  for (const Simd* simd : usable())
    for (const Function& f : functions)
      for (double argument : arguments) {
        const auto x = static_cast<float>(argument);
        const auto y = static_cast<double>(apply(*simd, f.op, {x})[0]);
        const double exact = static_cast<double>(static_cast<float>(f.exact(static_cast<double>(x))));
        if (std::isnan(exact) || std::isinf(exact))
          EXPECT_TRUE(std::isnan(exact) ? std::isnan(y) : y == exact)
              << simd->name << " " << f.name << " of " << x << ": " << y;
        else
          EXPECT_LE(std::fabs(y - exact), f.most_ulps * ulp(exact)) << simd->name << " " << f.name << " of " << x;
      }
}

// Where gelu approaches zero for negative arguments, only the absolute error matters.
TEST(CpuMath, GeluIsExactToARoundingOfItsArgument) {
  const auto x = floats_up_to(12.0F);
  for (const Simd* simd : usable()) {
    const auto y = apply(*simd, TileOp::k_gelu, x);
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const auto exact = gelu(static_cast<double>(x[i]));
      worst = std::max(worst, std::fabs(static_cast<double>(y[i]) - exact) / ulp(static_cast<double>(x[i])));
    }
    fmt::print("{:8} gelu {:.2f} ULP of its argument\n", simd->name, worst);
    EXPECT_LE(worst, 2.0) << simd->name;
  }
}

// The vector loop and its remainder must agree, or a recomputed value could differ with other tiles.
TEST(CpuMath, ElementsDoNotDependOnTheirPlace) {
  const auto x = floats_up_to(30.0F);
  for (const Simd* simd : usable()) {
    for (TileOp op :
         {TileOp::k_sigmoid, TileOp::k_tanh, TileOp::k_gelu, TileOp::k_silu, TileOp::k_elu, TileOp::k_gelu_tanh,
          TileOp::k_exp, TileOp::k_expm1, TileOp::k_log1p, TileOp::k_softplus, TileOp::k_erf, TileOp::k_erfinv,
          TileOp::k_sin, TileOp::k_cos, TileOp::k_tan, TileOp::k_atan, TileOp::k_asinh, TileOp::k_sinh}) {
      const auto whole = apply(*simd, op, std::vector<float>(x.begin(), x.begin() + 4099));
      for (size_t i = 0; i < 4099; ++i) {
        const auto alone = apply(*simd, op, {x[i]});
        ASSERT_EQ(std::bit_cast<uint32_t>(alone[0]), std::bit_cast<uint32_t>(whole[i])) << simd->name << " at " << x[i];
      }
    }
  }
}

}  // namespace
}  // namespace plimsoll::engine::cpu
