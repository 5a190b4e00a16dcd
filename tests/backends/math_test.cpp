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

// Every 997th float of both signs up to `most`.
std::vector<float> floats_up_to(float most) {
  std::vector<float> list;
  for (uint32_t bits = 0; bits <= std::bit_cast<uint32_t>(most); bits += 997) {
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
         {TileOp::k_sigmoid, TileOp::k_tanh, TileOp::k_gelu, TileOp::k_silu, TileOp::k_elu, TileOp::k_gelu_tanh}) {
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
