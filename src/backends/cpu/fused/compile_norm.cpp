// Tile forms of channel sums, batch normalisation and its statistics. A comment after a signature lists the node's
// inputs (and -> outputs); `?` marks optional ones.
#include <algorithm>
#include <cmath>

#include "backends/cpu/fused/compiler.h"
#include "ops/split.h"

namespace plimsoll::engine::cpu {
namespace {

using Kind = Operand::Kind;

// gamma / sqrt(var + epsilon); gamma is input `gamma`, or 1.
Operand inverse_deviation(Compiler& c, size_t var, size_t gamma) {
  const int variance = c.raw(var);
  const int factor = c.attrs().flag("scale") ? c.raw(gamma) : kNone;
  return c.vector([=, epsilon = c.attrs().real("epsilon"), n = c.channels()](Inputs inputs, float* v) {
    for (int64_t i = 0; i < n; ++i) {
      const double r = 1.0 / std::sqrt(static_cast<double>(floats(inputs, variance)[i]) + epsilon);
      v[i] = static_cast<float>(factor == kNone ? r : r * static_cast<double>(floats(inputs, factor)[i]));
    }
  });
}

void compile_batch_norm_apply(Compiler& c) {  // x, mean, var, gamma?, beta?
  const Operand x = c.full(0), mean = c.copied_vector(1), factor = inverse_deviation(c, 2, 3);
  if (!c.attrs().flag("center")) {
    c.emit(TileOp::k_normalize, {x, mean, factor}, {c.result()});
    return;
  }
  const Operand offset = c.copied_vector(c.attrs().flag("scale") ? 4 : 3);
  c.emit(TileOp::k_normalize_shift, {x, mean, factor, offset}, {c.result()});
}

void compile_batch_norm_input_grad(Compiler& c) {  // dy, x, mean, var, dgamma, dbeta, gamma?
  const Operand dy = c.full(0), x = c.full(1), mean = c.copied_vector(2);
  const int var = c.raw(3), dgamma = c.raw(4), dbeta = c.raw(5);
  const int64_t n = c.channels();
  const double rows = summed_rows(c.attrs(), c.rows()), epsilon = c.attrs().real("epsilon");
  const Operand mean_dy = c.vector([=](Inputs inputs, float* v) {
    for (int64_t i = 0; i < n; ++i) v[i] = static_cast<float>(static_cast<double>(floats(inputs, dbeta)[i]) / rows);
  });
  const Operand slope = c.vector([=](Inputs inputs, float* v) {
    for (int64_t i = 0; i < n; ++i) {
      const double r = 1.0 / std::sqrt(static_cast<double>(floats(inputs, var)[i]) + epsilon);
      v[i] = static_cast<float>(static_cast<double>(floats(inputs, dgamma)[i]) * r / rows);
    }
  });
  const Operand factor = inverse_deviation(c, 3, 6);
  c.emit(TileOp::k_norm_input_grad, {dy, x, mean, mean_dy, slope, factor}, {c.result()}, 2);
}

void compile_batch_norm_frozen_grad(Compiler& c) {  // dy, var, gamma?
  c.emit(TileOp::k_multiply, {c.full(0), inverse_deviation(c, 1, 2)}, {c.result()});
}

void compile_reduce_to(Compiler& c) {
  const int sum = c.accumulators(1), to = c.output_index(0);
  const DType dtype = c.result_dtype();
  c.emit(TileOp::k_accumulate, {c.full(0)}, {{Kind::kAccumulator, sum}});
  c.reduce(sum, [to, dtype, n = c.channels()](Inputs, Inputs outputs, const double* sums, int64_t segment) {
    if (to == kNone) return;
    char* const y = static_cast<char*>(outputs[static_cast<size_t>(to)]) + segment * n * size_of(dtype);
    for (int64_t i = 0; i < n; ++i) {
      const auto value = static_cast<float>(sums[i]);
      narrow(dtype, &value, y + i * size_of(dtype), 1);
    }
  });
}

void compile_batch_norm_grad_stats(Compiler& c) {  // dy, x, mean, var -> dgamma, dbeta
  const int sums_at = c.accumulators(2), dgamma = c.output_index(0), dbeta = c.output_index(1), var = c.raw(3);
  const Operand dy = c.full(0), x = c.full(1), mean = c.copied_vector(2);
  c.emit(TileOp::k_accumulate_centered, {dy, x, mean}, {{Kind::kAccumulator, sums_at}}, 2);
  c.emit(TileOp::k_accumulate, {dy}, {{Kind::kAccumulator, sums_at + 1}});
  c.reduce(sums_at, [=, epsilon = c.attrs().real("epsilon"), n = c.channels()](Inputs inputs, Inputs outputs,
                                                                               const double* sums, int64_t) {
    for (int64_t i = 0; i < n; ++i) {
      const double r = 1.0 / std::sqrt(static_cast<double>(floats(inputs, var)[i]) + epsilon);
      if (dgamma != kNone)
        static_cast<float*>(outputs[static_cast<size_t>(dgamma)])[i] = static_cast<float>(sums[i] * r);
      if (dbeta != kNone) static_cast<float*>(outputs[static_cast<size_t>(dbeta)])[i] = static_cast<float>(sums[n + i]);
    }
  });
}

// Computes the moments about a shift near the mean, so that the difference of squares does not cancel. The shift is the
// mean of sample rows spread over x.
void compile_batch_norm_stats(Compiler& c) {
  const int sums_at = c.accumulators(2), mean = c.output_index(0), var = c.output_index(1), from = c.raw(0);
  const int64_t n = c.channels(), rows = c.program.rows, samples = std::min<int64_t>(rows, 64);
  if (mean == kNone || var == kNone) c.refuse("must return both moments");
  const Derive shift = [=, dtype = c.type(0).dtype](Inputs inputs, float* v) {
    const auto* x = static_cast<const char*>(inputs[static_cast<size_t>(from)]);
    for (int64_t i = 0; i < n; ++i) {
      double sum = 0;
      for (int64_t s = 0; s < samples; ++s) {
        float value = 0;
        widen(dtype, x + (rows * s / samples * n + i) * size_of(dtype), &value, 1);
        sum += static_cast<double>(value);
      }
      v[i] = static_cast<float>(sum / static_cast<double>(samples));
    }
  };
  c.emit(TileOp::k_accumulate_moments, {c.full(0), c.vector(shift)},
         {{Kind::kAccumulator, sums_at}, {Kind::kAccumulator, sums_at + 1}}, 3);
  c.reduce(sums_at, [=](Inputs inputs, Inputs outputs, const double* sums, int64_t) {
    // Recomputes the shift into the mean output, which is overwritten below.
    auto* m = static_cast<float*>(outputs[static_cast<size_t>(mean)]);
    auto* v = static_cast<float*>(outputs[static_cast<size_t>(var)]);
    shift(inputs, m);
    for (int64_t i = 0; i < n; ++i) {
      const double d = sums[i] / static_cast<double>(rows);
      v[i] = static_cast<float>(std::max(0.0, sums[n + i] / static_cast<double>(rows) - d * d));
      m[i] = static_cast<float>(static_cast<double>(m[i]) + d);
    }
  });
}

void compile_moving_average(Compiler& c) {
  const double momentum = c.attrs().real("momentum");
  auto& instruction = c.emit(TileOp::k_moving_average, {c.full(0), c.full(1)}, {c.result()});
  instruction.f[0] = static_cast<float>(momentum);
  instruction.f[1] = static_cast<float>(1.0 - momentum);
}

constexpr TileForm kForms[] = {
    {"batch_norm_apply", compile_batch_norm_apply},
    {"batch_norm_input_grad", compile_batch_norm_input_grad},
    {"batch_norm_frozen_grad", compile_batch_norm_frozen_grad},
    {"batch_norm_grad_stats", compile_batch_norm_grad_stats},
    {"batch_norm_stats", compile_batch_norm_stats},
    {"reduce_to", compile_reduce_to},
    {"moving_average", compile_moving_average},
};

}  // namespace

std::span<const TileForm> normalization_forms() {
  return kForms;
}

}  // namespace plimsoll::engine::cpu
