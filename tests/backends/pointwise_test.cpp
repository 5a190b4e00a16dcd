// The weight gradient of 1x1 convolutions by GEMM.
#include <gtest/gtest.h>

#include <cmath>

#include "backends/cpu/cpu.h"
#include "tests/backends/bound.h"

namespace plimsoll::engine::testing {
namespace {

struct Sizes {
  int64_t pixels, c, o;
};

std::vector<float> normal(int64_t n, uint64_t seed) {
  std::vector<float> x(static_cast<size_t>(n));
  fill_normal(x.data(), n, seed);
  return x;
}

// dw and then, if there is a bias, db, computed by the named kernel.
std::vector<float> gradient(const Sizes& s, bool bias, int threads, const std::vector<float>& x,
                            const std::vector<float>& dy) {
  const auto backend = make_cpu_backend(threads);
  using Ints = std::vector<int64_t>;
  Attrs attrs = {{"strides", Ints{1, 1}},
                 {"pads", Ints{0, 0, 0, 0}},
                 {"dilations", Ints{1, 1}},
                 {"groups", int64_t{1}},
                 {"kernel", Ints{1, 1}}};
  if (bias) attrs.set("bias", true);
  const Graph graph =
      single("conv2d_weight_grad", {floats({1, s.pixels, 1, s.c}), floats({1, s.pixels, 1, s.o})}, attrs);
  std::vector<float> result(static_cast<size_t>(s.c * s.o + s.o)), workspace(8 * 1024 * 1024);
  std::vector<void*> in = {const_cast<float*>(x.data()), const_cast<float*>(dy.data())}, out = {result.data()};
  if (bias) out.push_back(result.data() + s.c * s.o);
  const Bytes granted = 4 * static_cast<Bytes>(workspace.size());
  require(backend->bind({graph, graph.nodes[0], "gemm_1x1", in, out, workspace.data(), granted}))->run();
  return result;
}

TEST(PointwiseGradient, GradientsOfWeightsAndBiasAreTheSumsOverAllPixels) {
  // 48 and 96 channels fill whole register blocks; the others do not. 5,000 pixels are split into slices.
  for (const Sizes& s : {Sizes{30, 16, 32}, {1000, 48, 48}, {5000, 96, 16}, {5000, 64, 128}, {300, 256, 80}})
    for (const bool bias : {false, true}) {
      const std::vector<float> x = normal(s.pixels * s.c, 1), dy = normal(s.pixels * s.o, 2);
      const std::vector<float> got = gradient(s, bias, 2, x, dy);
      std::vector<double> want(got.size(), 0.0);
      for (int64_t p = 0; p < s.pixels; ++p)
        for (int64_t j = 0; j < s.o; ++j) {
          const double d = dy[static_cast<size_t>(p * s.o + j)];
          for (int64_t i = 0; i < s.c; ++i)
            want[static_cast<size_t>(i * s.o + j)] += x[static_cast<size_t>(p * s.c + i)] * d;
          if (bias) want[static_cast<size_t>(s.c * s.o + j)] += d;
        }
      double largest = 0, worst = 0;
      for (size_t i = 0; i < want.size(); ++i) {
        largest = std::max(largest, std::abs(want[i]));
        worst = std::max(worst, std::abs(static_cast<double>(got[i]) - want[i]));
      }
      EXPECT_LE(worst, op_def("conv2d_weight_grad").error_units * std::ldexp(largest, -24))
          << s.pixels << " pixels, " << s.c << " to " << s.o;
      EXPECT_EQ(gradient(s, bias, 1, x, dy), got) << "a different number of threads";
    }
}

}  // namespace
}  // namespace plimsoll::engine::testing
