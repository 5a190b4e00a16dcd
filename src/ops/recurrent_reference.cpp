// The float64 reference of `recurrent` and `recurrent_grad`: one sample at a time, one step after the other.
#include <cmath>

#include "ops/families.h"
#include "ops/recurrent.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

double value_of(CellFunction f, double x) {
  const double alpha = static_cast<double>(kSeluAlpha), scale = static_cast<double>(kSeluScale);
  switch (f) {
    case CellFunction::kLinear:
      return x;
    case CellFunction::kRelu:
      return std::max(x, 0.0);
    case CellFunction::kRelu6:
      return std::clamp(x, 0.0, 6.0);
    case CellFunction::kLeakyRelu:
      return x > 0 ? x : static_cast<double>(kLeakySlope) * x;
    case CellFunction::kSigmoid:
      return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
    case CellFunction::kHardSigmoid:
      return std::clamp(x + 3, 0.0, 6.0) / 6;
    case CellFunction::kTanh:
      return std::tanh(x);
    case CellFunction::kHardTanh:
      return std::clamp(x, -1.0, 1.0);
    case CellFunction::kSoftsign:
      return x / (1 + std::abs(x));
    case CellFunction::kSoftplus:
      return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
    case CellFunction::kElu:
      return x > 0 ? x : std::expm1(x);
    case CellFunction::kSelu:
      return scale * (x > 0 ? x : alpha * std::expm1(x));
    case CellFunction::kExponential:
      return std::exp(x);
  }
  return x;
}

// The slope where the function's value is y.
double slope_at(CellFunction f, double y) {
  const double alpha = static_cast<double>(kSeluAlpha), scale = static_cast<double>(kSeluScale);
  switch (f) {
    case CellFunction::kLinear:
      return 1;
    case CellFunction::kRelu:
      return y > 0 ? 1 : 0;
    case CellFunction::kRelu6:
      return y > 0 && y < 6 ? 1 : 0;
    case CellFunction::kLeakyRelu:
      return y > 0 ? 1 : static_cast<double>(kLeakySlope);
    case CellFunction::kSigmoid:
      return y * (1 - y);
    case CellFunction::kHardSigmoid:
      return y > 0 && y < 1 ? 1.0 / 6 : 0;
    case CellFunction::kTanh:
      return 1 - y * y;
    case CellFunction::kHardTanh:
      return y > -1 && y < 1 ? 1 : 0;
    case CellFunction::kSoftsign:
      return (1 - std::abs(y)) * (1 - std::abs(y));
    case CellFunction::kSoftplus:
      return -std::expm1(-y);
    case CellFunction::kElu:
      return y > 0 ? 1 : y + 1;
    case CellFunction::kSelu:
      return y > 0 ? scale : y + scale * alpha;
    case CellFunction::kExponential:
      return y;
  }
  return 1;
}

using Row = std::vector<double>;

// What one step of one sample computes.
struct Step {
  Row gates, h, c;
};

class Loop {
 public:
  Loop(const ReferenceCall& call)  // NOLINT(google-explicit-constructor)
      : r(read_recurrent(call.attrs, call.inputs[0].type.shape, call.inputs[2].type.shape)), call_(call) {}

  const Recurrent r;

  const double* input(Slot slot) const { return in(call_, static_cast<size_t>(slot)); }
  double* output(Slot slot) const { return out(call_, static_cast<size_t>(slot)); }
  void clear(Slot slot) const {
    if (slot >= 0) std::fill_n(output(slot), call_.outputs[static_cast<size_t>(slot)].elements(), 0.0);
  }

  bool unmasked(int64_t n, int64_t s) const {
    return r.in_mask < 0 || input(r.in_mask)[n * r.t + r.input_step(s)] > 0.5;
  }
  // The first step of the loop that is not masked; T if all are.
  int64_t first_unmasked(int64_t n) const {
    int64_t s = 0;
    while (s < r.t && !unmasked(n, s)) ++s;
    return s;
  }
  double x(int64_t n, int64_t s, int64_t i, int64_t gate) const {
    const double value = input(0)[(n * r.t + r.input_step(s)) * r.d + i];
    return value * x_mask(n, i, gate);
  }
  double x_mask(int64_t n, int64_t i, int64_t gate) const { return factor(r.in_x_masks, r.x_masks, r.d, n, i, gate); }
  double h_mask(int64_t n, int64_t i, int64_t gate) const { return factor(r.in_h_masks, r.h_masks, r.u, n, i, gate); }
  double kernel(int64_t i, int64_t gate, int64_t j) const { return input(1)[(i * r.gates() + gate) * r.u + j]; }
  double recurrent(int64_t i, int64_t gate, int64_t j) const { return input(2)[(i * r.gates() + gate) * r.u + j]; }
  Row initial(Slot slot, int64_t n) const { return slot < 0 ? Row() : row(slot, n, 1, 0, r.u); }
  // Vector `s` of the `count` vectors that sample n has in an input.
  Row row(Slot slot, int64_t n, int64_t count, int64_t s, int64_t size) const {
    const double* first = input(slot) + (n * count + s) * size;
    return Row(first, first + size);
  }

  Step step(int64_t n, int64_t s, const Row& h, const Row& c) const;

 private:
  double factor(Slot slot, int64_t masks, int64_t size, int64_t n, int64_t i, int64_t gate) const {
    return masks == 0 ? 1.0 : input(slot)[(n * masks + (masks == 1 ? 0 : gate)) * size + i];
  }
  // The sum that comes from the input, with its bias, and the one that comes from the state.
  double from_input(int64_t n, int64_t s, int64_t gate, int64_t j) const {
    double sum = r.in_bias < 0 ? 0.0 : input(r.in_bias)[gate * r.u + j];
    for (int64_t i = 0; i < r.d; ++i) sum += x(n, s, i, gate) * kernel(i, gate, j);
    return sum;
  }
  double from_state(int64_t n, const Row& h, int64_t gate, int64_t j) const {
    double sum = r.cell == CellKind::kGru && r.in_bias >= 0 ? input(r.in_bias)[(r.gates() + gate) * r.u + j] : 0.0;
    for (int64_t i = 0; i < r.u; ++i) sum += h[static_cast<size_t>(i)] * h_mask(n, i, gate) * recurrent(i, gate, j);
    return sum;
  }

  const ReferenceCall& call_;
};

Step Loop::step(int64_t n, int64_t s, const Row& h, const Row& c) const {
  const auto u = static_cast<size_t>(r.u);
  Step made{Row(static_cast<size_t>(r.saved()) * u), Row(u), Row(r.has_carry() ? u : 0)};
  const auto gate = [&](CellFunction f, int64_t g, size_t j) {
    return value_of(f, from_input(n, s, g, static_cast<int64_t>(j)) + from_state(n, h, g, static_cast<int64_t>(j)));
  };
  const CellFunction f = r.activation, recurrent_f = r.recurrent_activation;
  if (r.cell == CellKind::kSimple) {
    for (size_t j = 0; j < u; ++j) made.h[j] = gate(f, 0, j);
    return made;
  }
  if (r.cell == CellKind::kLstm) {
    for (size_t j = 0; j < u; ++j) {
      for (int64_t g = 0; g < 4; ++g) made.gates[static_cast<size_t>(g) * u + j] = gate(g == 2 ? f : recurrent_f, g, j);
      made.c[j] = made.gates[u + j] * c[j] + made.gates[j] * made.gates[2 * u + j];
      made.h[j] = made.gates[3 * u + j] * value_of(f, made.c[j]);
    }
    return made;
  }
  Row reset(u);
  for (size_t j = 0; j < u; ++j) {
    made.gates[j] = gate(recurrent_f, 0, j);
    made.gates[u + j] = gate(recurrent_f, 1, j);
    reset[j] = made.gates[u + j] * h[j];
  }
  for (size_t j = 0; j < u; ++j) {
    const auto at = static_cast<int64_t>(j);
    const bool after = r.cell == CellKind::kGru;
    const double inner = from_state(n, after ? h : reset, 2, at);
    if (after) made.gates[3 * u + j] = inner;
    made.gates[2 * u + j] = value_of(f, from_input(n, s, 2, at) + (after ? made.gates[u + j] : 1.0) * inner);
    made.h[j] = made.gates[j] * h[j] + (1 - made.gates[j]) * made.gates[2 * u + j];
  }
  return made;
}

void put(double* to, int64_t n, int64_t count, int64_t s, const Row& row) {
  std::copy(row.begin(), row.end(), to + (n * count + s) * static_cast<int64_t>(row.size()));
}

void run_sample(const Loop& loop, int64_t n) {
  const Recurrent& r = loop.r;
  const Row nothing(static_cast<size_t>(r.u), 0.0);
  Row h = loop.initial(3, n), c = loop.initial(r.in_carry, n), last = nothing;
  for (int64_t s = 0; s < r.t; ++s) {
    if (r.saves == CellSaves::kCheckpoints && s % r.every == 0) {
      put(loop.output(r.out_states), n, r.checkpoints(), s / r.every, h);
      if (r.out_carries >= 0) put(loop.output(r.out_carries), n, r.checkpoints(), s / r.every, c);
    }
    Step made{Row(static_cast<size_t>(r.saved() * r.u), 0.0), h, c};
    const bool unmasked = loop.unmasked(n, s);
    if (unmasked) {
      made = loop.step(n, s, h, c);
      h = made.h;
      c = made.c;
      last = h;
    }
    const Row& y = unmasked || !r.zeroes_masked ? last : nothing;
    if (r.sequences) put(loop.output(0), n, r.t, r.output_step(s), y);
    if (!r.sequences && s + 1 == r.t) put(loop.output(0), n, 1, 0, y);
    if (r.saves != CellSaves::kEverything) continue;
    if (r.out_states >= 0) put(loop.output(r.out_states), n, r.t, s, h);
    if (r.out_gates >= 0) put(loop.output(r.out_gates), n, r.t, s, made.gates);
    if (r.out_carries >= 0) put(loop.output(r.out_carries), n, r.t, s, c);
  }
  put(loop.output(1), n, 1, 0, h);
  if (r.out_carry >= 0) put(loop.output(r.out_carry), n, 1, 0, c);
}

// The states before and after each step of a sample, and its gates.
struct Record {
  std::vector<Row> h, c, h_after, c_after, gates;

  void add(Row before_h, Row before_c, Step after) {
    h.push_back(std::move(before_h));
    c.push_back(std::move(before_c));
    h_after.push_back(std::move(after.h));
    c_after.push_back(std::move(after.c));
    gates.push_back(std::move(after.gates));
  }
};

// Each segment again from its checkpoint.
Record computed_again(const Loop& loop, int64_t n) {
  const Recurrent& r = loop.r;
  Record record;
  Row h, c;
  for (int64_t s = 0; s < r.t; ++s) {
    if (s % r.every == 0) {
      h = loop.row(r.in_states, n, r.checkpoints(), s / r.every, r.u);
      if (r.has_carry()) c = loop.row(r.in_carries, n, r.checkpoints(), s / r.every, r.u);
    }
    Step made{Row(static_cast<size_t>(r.saved() * r.u), 0.0), h, c};
    if (loop.unmasked(n, s)) made = loop.step(n, s, h, c);
    record.add(h, c, made);
    h = made.h;
    c = made.c;
  }
  return record;
}

Record record_of(const Loop& loop, int64_t n) {
  const Recurrent& r = loop.r;
  if (r.saves == CellSaves::kCheckpoints) return computed_again(loop, n);
  const int64_t first = loop.first_unmasked(n);
  const bool output = r.output_is_states();
  // As an output, the record has zeros before the first unmasked step.
  const auto h_after = [&](int64_t s) {
    if (s < (output ? first : 0)) return loop.initial(3, n);
    return loop.row(r.in_states, n, r.t, output ? r.output_step(s) : s, r.u);
  };
  const auto c_after = [&](int64_t s) {
    if (!r.has_carry()) return Row();
    return s < 0 ? loop.initial(r.in_carry, n) : loop.row(r.in_carries, n, r.t, s, r.u);
  };
  Record record;
  for (int64_t s = 0; s < r.t; ++s)
    record.add(h_after(s - 1), c_after(s - 1),
               {r.saved() > 0 ? loop.row(r.in_gates, n, r.t, s, r.saved() * r.u) : Row(), h_after(s), c_after(s)});
  return record;
}

// Gradients of the two sums of each gate at one step, and what the state is multiplied by in the second sum.
struct StepGradient {
  Row from_input, from_state, operand;  // [gates * U] each; operand: [gates][U], before dropout
};

// Turns the gradients dh, dc of the states after a step into those of the sums; dh becomes the part that reaches the
// state before without them, dc the gradient of the carry before.
StepGradient step_back(const Recurrent& r, const Row& gates, const Row& h, const Row& c, const Row& h_after,
                       const Row& c_after, Row& dh, Row& dc) {
  const auto u = static_cast<size_t>(r.u), wide = u * static_cast<size_t>(r.gates());
  StepGradient d{Row(wide), Row(wide), Row(wide)};
  const CellFunction f = r.activation, recurrent_f = r.recurrent_activation;
  for (size_t j = 0; j < wide; ++j) d.operand[j] = h[j % u];
  for (size_t j = 0; j < u; ++j) {
    const auto gate = [&](size_t g) { return gates[g * u + j]; };
    if (r.cell == CellKind::kSimple) {
      d.from_input[j] = dh[j] * slope_at(f, h_after[j]);
      dh[j] = 0;
    } else if (r.cell == CellKind::kLstm) {
      const double squashed = value_of(f, c_after[j]);
      const double dc_all = dc[j] + dh[j] * gate(3) * slope_at(f, squashed);
      d.from_input[j] = dc_all * gate(2) * slope_at(recurrent_f, gate(0));
      d.from_input[u + j] = dc_all * c[j] * slope_at(recurrent_f, gate(1));
      d.from_input[2 * u + j] = dc_all * gate(0) * slope_at(f, gate(2));
      d.from_input[3 * u + j] = dh[j] * squashed * slope_at(recurrent_f, gate(3));
      dc[j] = dc_all * gate(1);
      dh[j] = 0;
    } else {
      d.from_input[j] = dh[j] * (h[j] - gate(2)) * slope_at(recurrent_f, gate(0));
      d.from_input[2 * u + j] = dh[j] * (1 - gate(0)) * slope_at(f, gate(2));
      if (r.cell == CellKind::kGru)
        d.from_input[u + j] = d.from_input[2 * u + j] * gate(3) * slope_at(recurrent_f, gate(1));
      else
        d.operand[2 * u + j] = gate(1) * h[j];
      dh[j] *= gate(0);
    }
  }
  d.from_state = d.from_input;
  if (r.cell == CellKind::kGru)
    for (size_t j = 0; j < u; ++j) d.from_state[2 * u + j] *= gates[u + j];
  return d;
}

// Adds to dh what reaches the state through the second sums.
void through_state(const Loop& loop, int64_t n, const Row& gates, const Row& h, StepGradient& d, Row& dh) {
  const Recurrent& r = loop.r;
  const auto u = static_cast<size_t>(r.u);
  const auto reaches = [&](int64_t gate, size_t i) {
    double sum = 0;
    for (int64_t j = 0; j < r.u; ++j)
      sum += d.from_state[static_cast<size_t>(gate * r.u + j)] * loop.recurrent(static_cast<int64_t>(i), gate, j);
    return sum * loop.h_mask(n, static_cast<int64_t>(i), gate);
  };
  if (r.cell == CellKind::kGruResetBefore) {  // the reset gate acts before the product
    Row back(u);
    for (size_t i = 0; i < u; ++i) back[i] = reaches(2, i);
    for (size_t i = 0; i < u; ++i) {
      d.from_input[u + i] = d.from_state[u + i] = back[i] * h[i] * slope_at(r.recurrent_activation, gates[u + i]);
      dh[i] += back[i] * gates[u + i];
    }
  }
  const int64_t plain = r.cell == CellKind::kGruResetBefore ? 2 : r.gates();
  for (size_t i = 0; i < u; ++i)
    for (int64_t gate = 0; gate < plain; ++gate) dh[i] += reaches(gate, i);
}

// The gradients of one sample's steps; empty where a step is masked.
std::vector<StepGradient> run_back(const Loop& loop, int64_t n) {
  const Recurrent& r = loop.r;
  const Record record = record_of(loop, n);
  const Row nothing(static_cast<size_t>(r.u), 0.0);
  Row dh = r.in_dh >= 0 ? loop.initial(r.in_dh, n) : nothing, dc = r.in_dc >= 0 ? loop.initial(r.in_dc, n) : nothing;
  const int64_t first = loop.first_unmasked(n);
  std::vector<StepGradient> steps(static_cast<size_t>(r.t));
  for (int64_t s = r.t - 1; s >= 0; --s) {
    const auto at = static_cast<size_t>(s);
    const bool unmasked = loop.unmasked(n, s);
    const bool reached = unmasked || (!r.zeroes_masked && s > first);
    if (r.in_dy >= 0 && reached && (r.sequences || s + 1 == r.t)) {
      const Row dy = r.sequences ? loop.row(r.in_dy, n, r.t, r.output_step(s), r.u) : loop.initial(r.in_dy, n);
      for (size_t j = 0; j < dh.size(); ++j) dh[j] += dy[j];
    }
    if (!unmasked) continue;
    steps[at] =
        step_back(r, record.gates[at], record.h[at], record.c[at], record.h_after[at], record.c_after[at], dh, dc);
    through_state(loop, n, record.gates[at], record.h[at], steps[at], dh);
  }
  put(loop.output(r.out_dh), n, 1, 0, dh);
  if (r.out_dc >= 0) put(loop.output(r.out_dc), n, 1, 0, dc);
  return steps;
}

void input_gradient(const Loop& loop, int64_t n, const std::vector<StepGradient>& steps) {
  const Recurrent& r = loop.r;
  for (int64_t s = 0; s < r.t; ++s) {
    const Row& d = steps[static_cast<size_t>(s)].from_input;
    for (int64_t i = 0; i < r.d; ++i) {
      const int64_t at = (n * r.t + r.input_step(s)) * r.d + i;
      double sum = 0;
      for (size_t j = 0; j < d.size(); ++j) {
        const int64_t gate = static_cast<int64_t>(j) / r.u;
        sum += d[j] * loop.x_mask(n, i, gate) * loop.kernel(i, gate, static_cast<int64_t>(j) % r.u);
      }
      loop.output(r.out_dx)[at] = sum;
    }
  }
}

void weight_gradients(const Loop& loop, const std::vector<std::vector<StepGradient>>& samples) {
  const Recurrent& r = loop.r;
  const int64_t wide = r.gates() * r.u;
  for (const Slot slot : {r.out_dw, r.out_du, r.out_db}) loop.clear(slot);
  for_each(wide, r.n * r.t * (r.d + r.u), [&](int64_t j) {
    const int64_t gate = j / r.u;
    for (int64_t n = 0; n < r.n; ++n)
      for (int64_t s = 0; s < r.t; ++s) {
        const StepGradient& d = samples[static_cast<size_t>(n)][static_cast<size_t>(s)];
        if (d.from_input.empty()) continue;
        const double dx = d.from_input[static_cast<size_t>(j)], dh = d.from_state[static_cast<size_t>(j)];
        for (int64_t i = 0; i < r.d; ++i) loop.output(r.out_dw)[i * wide + j] += loop.x(n, s, i, gate) * dx;
        for (int64_t i = 0; i < r.u; ++i)
          loop.output(r.out_du)[i * wide + j] +=
              d.operand[static_cast<size_t>(gate * r.u + i)] * loop.h_mask(n, i, gate) * dh;
        if (r.out_db < 0) continue;
        loop.output(r.out_db)[j] += dx;
        if (r.cell == CellKind::kGru) loop.output(r.out_db)[wide + j] += dh;
      }
  });
}

}  // namespace

void recurrent_reference(const ReferenceCall& call) {
  const Loop loop(call);
  const Recurrent& r = loop.r;
  for_each(r.n, r.t * r.gates() * r.u * (r.d + r.u), [&](int64_t n) { run_sample(loop, n); });
}

void recurrent_grad_reference(const ReferenceCall& call) {
  const Loop loop(call);
  const Recurrent& r = loop.r;
  std::vector<std::vector<StepGradient>> samples(static_cast<size_t>(r.n));
  for_each(r.n, 2 * r.t * r.gates() * r.u * (r.d + r.u), [&](int64_t n) {
    samples[static_cast<size_t>(n)] = run_back(loop, n);
    if (r.out_dx >= 0) input_gradient(loop, n, samples[static_cast<size_t>(n)]);
  });
  if (r.out_dw >= 0) weight_gradients(loop, samples);
}

}  // namespace plimsoll::engine
