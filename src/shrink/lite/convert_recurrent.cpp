// A loop over time is written step by step with ordinary operators, which share its weights. So every runtime can run
// it, and quantize it like any other layer.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "ops/recurrent.h"
#include "shrink/lite/converter.h"

namespace plimsoll::engine::lite {
namespace {

constexpr int64_t kMostSteps = 512;

class Loop {
 public:
  Loop(Converter& c, const Node& node)
      : c_(c),
        node_(node),
        r_(read_recurrent(node.attrs, c.shape(node.inputs[0]), c.shape(node.inputs[2]))),
        units_(static_cast<int32_t>(r_.u)) {}

  void build() {
    if (r_.mask) return c_.refuse("a loop over time with a mask");
    if (r_.t > kMostSteps) return c_.refuse(fmt::format("a loop over {} steps; {} is the most", r_.t, kMostSteps));
    if (!known(r_.activation) || (r_.cell != CellKind::kSimple && !known(r_.recurrent_activation)))
      return c_.refuse("a loop over time whose activations are neither tanh, sigmoid, relu nor linear");
    for (const ValueId weight : {node_.inputs[1], node_.inputs[2]})
      if (!c_.is_constant(weight)) return c_.refuse("a loop over time whose weights are computed");
    prepare();
    int32_t h = c_.tensor(node_.inputs[3]), carry = r_.has_carry() ? c_.tensor(node_.inputs[4]) : -1;
    std::vector<int32_t> outputs(static_cast<size_t>(r_.t));
    for (int64_t s = 0; s < r_.t; ++s) {
      step(static_cast<int32_t>(r_.input_step(s)), h, carry);
      outputs[static_cast<size_t>(r_.output_step(s))] = h;
    }
    int32_t y = h;
    if (r_.sequences) {
      const auto steps = static_cast<int32_t>(r_.t);
      Options rows;
      rows.axis = 0;
      y = c_.reshape(steps == 1 ? h : c_.add(Op::kConcat, outputs, {steps, units_}, rows), {1, steps, units_});
    }
    c_.set(node_.outputs[0], y);
    c_.set(node_.outputs[1], h);
    if (r_.has_carry()) c_.set(node_.outputs[2], carry);
  }

 private:
  static bool known(CellFunction f) {
    return f == CellFunction::kTanh || f == CellFunction::kSigmoid || f == CellFunction::kRelu ||
           f == CellFunction::kLinear;
  }
  int32_t activated(CellFunction f, int32_t x) {
    const Op op = f == CellFunction::kTanh ? Op::kTanh : f == CellFunction::kSigmoid ? Op::kLogistic : Op::kRelu;
    return f == CellFunction::kLinear ? x : c_.add(op, {x}, c_.shape_of(x));
  }
  int32_t both(Op op, int32_t a, int32_t b) { return c_.add(op, {a, b}, c_.shape_of(a)); }

  // [rows, columns] -> [columns, rows]
  int32_t turned(ValueId weight, int64_t first, int64_t count, const char* name) {
    const Shape& s = c_.shape(weight);
    const std::vector<float> from = c_.floats(weight);
    std::vector<float> to(static_cast<size_t>(s[0] * count));
    for (int64_t i = 0; i < s[0]; ++i)
      for (int64_t j = 0; j < count; ++j)
        to[static_cast<size_t>(j * s[0] + i)] = from[static_cast<size_t>(i * s[1] + first + j)];
    return c_.add_constant({static_cast<int32_t>(count), static_cast<int32_t>(s[0])}, std::move(to), name);
  }
  int32_t bias(int64_t row, int64_t first, int64_t count, const char* name) {
    std::vector<float> made(static_cast<size_t>(count));
    if (r_.bias) {
      const std::vector<float> all = c_.floats(node_.inputs[static_cast<size_t>(r_.in_bias)]);
      const int64_t begin = row * r_.gates() * r_.u + first;
      if (begin + count <= static_cast<int64_t>(all.size())) std::copy_n(all.begin() + begin, count, made.begin());
    }
    return c_.add_constant({static_cast<int32_t>(count)}, std::move(made), name);
  }

  // The products of all steps' inputs at once, and the weights of the products with the state.
  void prepare() {
    const auto steps = static_cast<int32_t>(r_.t), width = static_cast<int32_t>(r_.gates() * r_.u);
    const int32_t x = c_.reshape(c_.tensor(node_.inputs[0]), {steps, static_cast<int32_t>(r_.d)});
    inputs_ = c_.add(Op::kFullyConnected, {x, turned(node_.inputs[1], 0, width, "kernel"), bias(0, 0, width, "bias")},
                     {steps, width});
    if (r_.cell == CellKind::kGruResetBefore) {
      state_weights_ = turned(node_.inputs[2], 0, 2 * r_.u, "recurrent_kernel");
      state_bias_ = bias(1, 0, 2 * r_.u, "recurrent_bias");
      candidate_weights_ = turned(node_.inputs[2], 2 * r_.u, r_.u, "candidate_kernel");
      candidate_bias_ = bias(1, 2 * r_.u, r_.u, "candidate_bias");
    } else {
      state_weights_ = turned(node_.inputs[2], 0, width, "recurrent_kernel");
      state_bias_ = bias(1, 0, width, "recurrent_bias");
    }
  }

  int32_t part(int32_t x, int32_t row, int32_t gate, int32_t gates) {
    const int32_t begin = c_.add_integers({row, gate * units_}, "begin");
    const int32_t size = c_.add_integers({1, gates * units_}, "size");
    return c_.add(Op::kSlice, {x, begin, size}, {1, gates * units_});
  }
  int32_t product(int32_t h, int32_t weights, int32_t offset) {
    return c_.add(Op::kFullyConnected, {h, weights, offset}, {1, c_.shape_of(weights)[0]});
  }

  void step(int32_t at, int32_t& h, int32_t& carry) {
    const auto gates = static_cast<int32_t>(r_.gates());
    const CellFunction gate = r_.recurrent_activation;
    const int32_t of_state = product(h, state_weights_, state_bias_);
    if (r_.cell == CellKind::kSimple) {
      h = activated(r_.activation, both(Op::kAdd, part(inputs_, at, 0, 1), of_state));
    } else if (r_.cell == CellKind::kLstm) {
      const int32_t sum = both(Op::kAdd, part(inputs_, at, 0, gates), of_state);
      const auto of = [&](int32_t i) { return part(sum, 0, i, 1); };
      const int32_t in = activated(gate, of(0)), forget = activated(gate, of(1)),
                    candidate = activated(r_.activation, of(2)), out = activated(gate, of(3));
      carry = both(Op::kAdd, both(Op::kMul, forget, carry), both(Op::kMul, in, candidate));
      h = both(Op::kMul, out, activated(r_.activation, carry));
    } else {
      const int32_t opened = activated(gate, both(Op::kAdd, part(inputs_, at, 0, 2), part(of_state, 0, 0, 2)));
      const int32_t update = part(opened, 0, 0, 1), reset = part(opened, 0, 1, 1);
      const int32_t of_reset = r_.cell == CellKind::kGru
                                   ? both(Op::kMul, reset, part(of_state, 0, 2, 1))
                                   : product(both(Op::kMul, reset, h), candidate_weights_, candidate_bias_);
      const int32_t candidate = activated(r_.activation, both(Op::kAdd, part(inputs_, at, 2, 1), of_reset));
      h = both(Op::kAdd, candidate, both(Op::kMul, update, both(Op::kSub, h, candidate)));
    }
  }

  Converter& c_;
  const Node& node_;
  Recurrent r_;
  int32_t units_;
  int32_t inputs_ = -1, state_weights_ = -1, state_bias_ = -1, candidate_weights_ = -1, candidate_bias_ = -1;
};

void recurrent(Converter& c, const Node& node) {
  Loop(c, node).build();
}

constexpr std::array kConversions = {NodeConversion{"recurrent", recurrent}};

}  // namespace

std::span<const NodeConversion> recurrent_conversions() {
  return kConversions;
}

}  // namespace plimsoll::engine::lite
