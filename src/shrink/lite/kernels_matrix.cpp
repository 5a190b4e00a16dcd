// Products of matrices.
#include <array>

#include "base/checked.h"
#include "shrink/lite/dot.h"
#include "shrink/lite/fixed_point.h"
#include "shrink/lite/kernels.h"

namespace plimsoll::engine::lite {
namespace {

Result<Kernel> fully_connected(Prepare& p) {
  PLIMSOLL_TRY(need_inputs(p, 2, 3));
  const Tensor &x = p.in(0), &w = p.in(1);
  if (!w.constant()) return fail(not_supported(p, "its weights are computed"));
  if (w.shape.size() != 2 || x.elements() % w.shape[1] != 0) return fail(bad_operator(p, "its weights do not fit"));
  const int64_t n = w.shape[0], k = w.shape[1], m = x.elements() / k;
  if (p.out().elements() != m * n) return fail(bad_operator(p, "its output has another size"));
  if (p.has(2) && p.in(2).elements() != n) return fail(bad_operator(p, "its bias does not fit"));
  const int32_t xi = p.at(0), yi = p.out_at(), bi = p.has(2) ? p.at(2) : -1;
  const Activation activation = p.options().activation;
  if (p.floats() && (w.type == Type::kFloat32 || w.type == Type::kInt8)) {
    if (p.has(2) && p.in(2).type != Type::kFloat32) return fail(bad_operator(p, "its bias has another type"));
    const auto& scales = w.quantization.scales;
    const bool int8 = w.type == Type::kInt8;
    if (int8 && (scales.empty() || w.quantization.axis != 0))
      return fail(not_supported(p, "its weights have no scale"));
    auto packed = std::make_shared<std::vector<float>>(static_cast<size_t>(n * k));  // [k, n]
    p.packed = n * k * 4;
    for (int64_t j = 0; j < n; ++j)
      for (int64_t i = 0; i < k; ++i) {
        const auto from = static_cast<size_t>(j * k + i);
        (*packed)[static_cast<size_t>(i * n + j)] =
            int8 ? static_cast<float>(w.as<int8_t>()[from]) * scales[scales.size() == 1 ? 0 : static_cast<size_t>(j)]
                 : w.as<float>()[from];
      }
    return Kernel([=](const Buffers& b) {
      float* y = b.as<float>(yi);
      multiply_rows(b.as<float>(xi), m, packed->data(), bi < 0 ? nullptr : b.as<float>(bi), n, k, y);
      if (activation != Activation::kNone)
        for (int64_t i = 0; i < m * n; ++i) y[i] = activated(y[i], activation);
    });
  }
  const Quantization& q = w.quantization;
  if (!p.int8() || w.type != Type::kInt8 || q.empty() || q.axis != 0 || activation == Activation::kTanh)
    return fail(not_supported(p, fmt::format("input {}, weights {}", name_of(x.type), name_of(w.type))));
  for (const int64_t zero : q.zeros)
    if (zero != 0) return fail(not_supported(p, "its weights have a zero point"));
  if (p.has(2) && p.in(2).type != Type::kInt32) return fail(bad_operator(p, "its bias has another type"));
  if (k > kMostProducts) return fail(not_supported(p, "it adds too many products for int32"));
  std::vector<Multiplier> multipliers;
  std::vector<int32_t> constant(static_cast<size_t>(n));
  const int32_t shift = x.quantization.zero() + 128;
  const Quantization& out = p.out().quantization;
  for (int64_t j = 0; j < n; ++j) {
    const double scale = q.scales[q.scales.size() == 1 ? 0 : static_cast<size_t>(j)];
    multipliers.push_back(multiplier_of(double{x.quantization.scale()} * scale / double{out.scale()}));
    for (int64_t i = 0; i < k; ++i)
      constant[static_cast<size_t>(j)] -= shift * w.as<int8_t>()[static_cast<size_t>(j * k + i)];
  }
  const Bytes rows = (m * k + 63) / 64 * 64;
  const auto sums = checked_multiply(m * n, Bytes{4});
  if (!sums) return fail(not_supported(p, "it is too large"));
  p.scratch = rows + *sums;
  const auto weights = std::make_shared<const IntegerWeights>(w.as<int8_t>().data(), n, k);
  p.packed = weights->bytes();
  const int32_t zero = out.zero();
  const Clamp clamp = clamp_of(activation, out);
  return Kernel([=](const Buffers& b) {
    auto* wide = reinterpret_cast<uint8_t*>(b.room);
    auto* made = reinterpret_cast<int32_t*>(wide + rows);
    const int8_t* from = b.as<int8_t>(xi);
    for (int64_t i = 0; i < m * k; ++i) wide[i] = static_cast<uint8_t>(from[i] + 128);
    weights->multiply(wide, m, made);
    const int32_t* bias = bi < 0 ? nullptr : b.as<int32_t>(bi);
    int8_t* y = b.as<int8_t>(yi);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        const auto c = static_cast<size_t>(j);
        const int64_t sum = int64_t{made[i * n + j]} + constant[c] + (bias == nullptr ? 0 : bias[j]);
        y[i * n + j] = clamp(int64_t{multiply(saturated(sum), multipliers[c])} + zero);
      }
  });
}

Result<Kernel> batch_matmul(Prepare& p) {
  PLIMSOLL_TRY(need_inputs(p, 2, 2));
  const Tensor &a = p.in(0), &w = p.in(1);
  const size_t rank = a.shape.size();
  if (rank < 2 || w.shape.size() != rank || w.type != a.type) return fail(bad_operator(p, "its matrices do not fit"));
  const Options& o = p.options();
  int64_t batch = 1;
  std::vector<int64_t> shape;
  for (size_t d = 0; d + 2 < rank; ++d) {
    if (a.shape[d] != w.shape[d]) return fail(not_supported(p, "a repeated operand"));
    batch *= a.shape[d];
    shape.push_back(a.shape[d]);
  }
  const int64_t m = a.shape[rank - (o.adjoint_x ? 1 : 2)], k = a.shape[rank - (o.adjoint_x ? 2 : 1)];
  const int64_t n = w.shape[rank - (o.adjoint_y ? 2 : 1)];
  if (w.shape[rank - (o.adjoint_y ? 1 : 2)] != k) return fail(bad_operator(p, "its matrices do not fit"));
  shape.push_back(m);
  shape.push_back(n);
  PLIMSOLL_TRY(need_shape(p, shape));
  const int32_t ai = p.at(0), wi = p.at(1), yi = p.out_at();
  const int64_t a_row = o.adjoint_x ? 1 : k, a_step = o.adjoint_x ? m : 1, w_column = o.adjoint_y ? k : 1,
                w_step = o.adjoint_y ? 1 : n;
  const auto visit = [=](auto* x, auto* y, auto sum, const auto& term, const auto& store) {
    for (int64_t s = 0; s < batch; ++s)
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          auto total = sum;
          for (int64_t t = 0; t < k; ++t)
            total += term(x[s * m * k + i * a_row + t * a_step], y[s * k * n + j * w_column + t * w_step]);
          store((s * m + i) * n + j, total);
        }
  };
  if (p.floats())
    return Kernel([=](const Buffers& b) {
      float* y = b.as<float>(yi);
      visit(
          b.as<const float>(ai), b.as<const float>(wi), 0.0F, [](float u, float v) { return u * v; },
          [&](int64_t at, float total) { y[at] = total; });
    });
  if (!p.int8() || w.quantization.scales.size() != 1 || k > kMostProducts / 4)
    return fail(not_supported(p, fmt::format("type {}", name_of(a.type))));
  const Quantization &qa = a.quantization, &qw = w.quantization, &qo = p.out().quantization;
  const Multiplier factor = multiplier_of(double{qa.scale()} * double{qw.scale()} / double{qo.scale()});
  const int32_t za = qa.zero(), zw = qw.zero(), zo = qo.zero();
  return Kernel([=](const Buffers& b) {
    int8_t* y = b.as<int8_t>(yi);
    visit(
        b.as<const int8_t>(ai), b.as<const int8_t>(wi), int32_t{0},
        [&](int8_t u, int8_t v) { return (u - za) * (v - zw); },
        [&](int64_t at, int32_t total) { y[at] = Clamp()(int64_t{multiply(total, factor)} + zo); });
  });
}

constexpr std::array kKernels = {
    KernelRow{Op::kFullyConnected, fully_connected},
    KernelRow{Op::kBatchMatmul, batch_matmul},
};

}  // namespace

std::span<const KernelRow> matrix_kernels() {
  return kKernels;
}

}  // namespace plimsoll::engine::lite
