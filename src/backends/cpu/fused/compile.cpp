// Compiles element-wise nodes to tile instructions, with one function per op. Ops that are a single expression are
// listed in ops.inl instead. A comment after a signature lists the node's inputs (and -> outputs); `?` marks optional
// ones.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "backends/common/elementwise.h"
#include "backends/cpu/fused/program.h"
#include "ops/predicates.h"

namespace plimsoll::engine::cpu {

namespace {

using Kind = Operand::Kind;

// The cost of an instruction in a compiled loop, relative to an add.
constexpr double kExpWork = 10;
constexpr double kPhiloxWork = 24;

class Compiler {
 public:
  Compiler(const Graph& graph, std::span<const Node> nodes, std::span<const ValueId> inputs,
           std::span<const ValueId> outputs)
      : graph_(graph), nodes_(nodes), inputs_(inputs), outputs_(outputs) {
    program.outputs = static_cast<int>(outputs.size());
  }

  Result<TileProgram> run();

  const Node& node() const { return nodes_[at_]; }
  const Attrs& attrs() const { return node().attrs; }
  const TensorType& type(size_t i) const { return graph_.type(node().inputs[i]); }
  int64_t channels() const { return program.channels; }
  double rows() const { return static_cast<double>(program.rows); }

  Operand full(size_t i);   // input i of the node, a tensor of the program's shape
  Operand whole(size_t i);  // input i, passed by its address
  int raw(size_t i);        // input i as the index of a program input; for derived values
  Operand result(size_t i = 0);
  Operand vector(Derive derive);
  Operand copied_vector(size_t i);
  Operand scalar(Derive derive);

  Instruction& emit(TileOp op, std::vector<Operand> in, std::vector<Operand> out, double work = 1);
  // Index of the program output that receives the node's output i, or kNone if the program does not return it.
  int output_index(size_t i) const;
  int accumulators(int count);
  void reduce(int first, std::function<void(Inputs, Inputs, const double*)> finish) {
    program.reductions.push_back({first, std::move(finish)});
  }
  void refuse(std::string why) {
    if (error_.empty()) error_ = fmt::format("{} {}", node().op, why);
  }

  TileProgram program;

 private:
  bool find_shape();
  void release_dead();
  bool read_later(ValueId id) const;

  const Graph& graph_;
  std::span<const Node> nodes_;
  std::span<const ValueId> inputs_, outputs_;
  size_t at_ = 0;
  std::map<ValueId, Operand> places_;
  std::vector<int> free_registers_;
  std::string error_;
};

bool Compiler::find_shape() {
  bool by_channel = false;
  const Shape* shape = nullptr;
  for (const Node& n : nodes_) {
    const Shape& s = graph_.type(is_channel_sum(n.op) ? n.inputs[0] : n.outputs[0]).shape;
    if (shape != nullptr && s != *shape) return false;
    shape = &s;
    by_channel = by_channel || uses_channels(n.op);
  }
  program.channels = shape->elements();
  if (by_channel) {
    program.channels = shape->back();
    program.rows = shape->elements() / program.channels;
  }
  return true;
}

Operand Compiler::full(size_t i) {
  const ValueId id = node().inputs[i];
  if (const auto place = places_.find(id); place != places_.end()) return place->second;
  const auto found = std::find(inputs_.begin(), inputs_.end(), id);
  if (found == inputs_.end()) {
    refuse("reads the result of a reduction in the same fused kernel");
    return {Kind::kRegister, 0};
  }
  if (graph_.type(id).shape.elements() != program.elements()) refuse("reads a tensor of a different shape");
  return {Kind::kInput, static_cast<int>(found - inputs_.begin()), static_cast<int>(size_of(graph_.type(id).dtype))};
}

int Compiler::raw(size_t i) {
  const auto found = std::find(inputs_.begin(), inputs_.end(), node().inputs[i]);
  if (found == inputs_.end()) {
    refuse("reads a vector or scalar that the same fused kernel computes");
    return 0;
  }
  return static_cast<int>(found - inputs_.begin());
}

Operand Compiler::whole(size_t i) {
  return {Kind::kWhole, raw(i)};
}

int Compiler::output_index(size_t i) const {
  const auto found = std::find(outputs_.begin(), outputs_.end(), node().outputs[i]);
  return found == outputs_.end() ? kNone : static_cast<int>(found - outputs_.begin());
}

Operand Compiler::result(size_t i) {
  const ValueId id = node().outputs[i];
  Operand place{Kind::kRegister, 0};
  if (const int index = output_index(i); index != kNone) {
    place = {Kind::kOutput, index};
  } else if (!free_registers_.empty()) {
    place.index = free_registers_.back();
    free_registers_.pop_back();
  } else {
    place.index = program.registers++;
  }
  places_[id] = place;
  return place;
}

Operand Compiler::vector(Derive derive) {
  program.vectors.push_back(std::move(derive));
  return {Kind::kVector, static_cast<int>(program.vectors.size()) - 1};
}

Operand Compiler::copied_vector(size_t i) {
  const int from = raw(i);
  return vector([from, c = channels()](Inputs inputs, float* v) {
    std::copy_n(static_cast<const float*>(inputs[static_cast<size_t>(from)]), c, v);
  });
}

Operand Compiler::scalar(Derive derive) {
  program.scalars.push_back(std::move(derive));
  return {Kind::kScalar, static_cast<int>(program.scalars.size()) - 1};
}

Instruction& Compiler::emit(TileOp op, std::vector<Operand> in, std::vector<Operand> out, double work) {
  program.work += work;
  program.instructions.push_back({op, std::move(in), std::move(out), {}, {}});
  return program.instructions.back();
}

int Compiler::accumulators(int count) {
  const int first = program.accumulators;
  program.accumulators += count;
  return first;
}

bool Compiler::read_later(ValueId id) const {
  for (size_t n = at_ + 1; n < nodes_.size(); ++n) {
    const auto& in = nodes_[n].inputs;
    if (std::find(in.begin(), in.end(), id) != in.end()) return true;
  }
  return false;
}

// Frees the registers whose value no later node reads.
void Compiler::release_dead() {
  for (auto place = places_.begin(); place != places_.end();) {
    if (place->second.kind == Kind::kRegister && !read_later(place->first)) {
      free_registers_.push_back(place->second.index);
      place = places_.erase(place);
    } else {
      ++place;
    }
  }
}

const float* floats(Inputs inputs, int i) {
  return static_cast<const float*>(inputs[static_cast<size_t>(i)]);
}

void binary(Compiler& c, TileOp op, double work = 1) {
  c.emit(op, {c.full(0), c.full(1)}, {c.result()}, work);
}
void unary(Compiler& c, TileOp op, double work = 1) {
  c.emit(op, {c.full(0)}, {c.result()}, work);
}

void compile_bias_add(Compiler& c) {
  c.emit(TileOp::k_add, {c.full(0), c.copied_vector(1)}, {c.result()});
}

void compile_scale(Compiler& c) {
  c.emit(TileOp::k_scale, {c.full(0), c.whole(1)}, {c.result()});
}

void compile_affine(Compiler& c) {
  auto& instruction = c.emit(TileOp::k_affine, {c.full(0)}, {c.result()});
  instruction.f[0] = static_cast<float>(c.attrs().real("scale"));
  instruction.f[1] = static_cast<float>(c.attrs().real("offset"));
}

void compile_cast(Compiler& c) {
  static const std::map<DType, TileOp> kFrom = {
      {DType::kFloat32, TileOp::k_copy},    {DType::kUInt8, TileOp::k_from_u8},   {DType::kBool, TileOp::k_from_u8},
      {DType::kInt8, TileOp::k_from_i8},    {DType::kUInt16, TileOp::k_from_u16}, {DType::kInt16, TileOp::k_from_i16},
      {DType::kInt32, TileOp::k_from_i32},  {DType::kUInt32, TileOp::k_from_u32}, {DType::kInt64, TileOp::k_from_i64},
      {DType::kUInt64, TileOp::k_from_u64}, {DType::kFloat64, TileOp::k_from_f64}};
  const auto from = kFrom.find(c.type(0).dtype);
  if (from == kFrom.end() || dtype_from_name(c.attrs().text("dtype")) != DType::kFloat32) {
    c.refuse("between these types has no tile form");
    return;
  }
  unary(c, from->second);
}

void set_relu(Instruction& instruction, const Attrs& attrs) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  instruction.f[0] = static_cast<float>(attrs.real_or("threshold", 0));
  instruction.f[1] = static_cast<float>(attrs.real_or("negative_slope", 0));
  instruction.f[2] = attrs.has("max_value") ? 0.0F : -kInfinity;
  instruction.f[3] = attrs.has("max_value") ? static_cast<float>(attrs.real("max_value")) : kInfinity;
}
void compile_relu(Compiler& c) {
  const TileOp op = is_plain_relu(c.attrs()) ? TileOp::k_relu : TileOp::k_relu_any;
  set_relu(c.emit(op, {c.full(0)}, {c.result()}), c.attrs());
}
void compile_relu_grad(Compiler& c) {
  const TileOp op = is_plain_relu(c.attrs()) ? TileOp::k_relu_grad : TileOp::k_relu_grad_any;
  set_relu(c.emit(op, {c.full(0), c.full(1)}, {c.result()}), c.attrs());
}

void compile_elu(Compiler& c) {
  auto& instruction = c.emit(TileOp::k_elu, {c.full(0)}, {c.result()}, 2 * kExpWork);
  instruction.f[0] = static_cast<float>(c.attrs().real_or("alpha", 1.0));
}
void compile_elu_grad(Compiler& c) {
  auto& instruction = c.emit(TileOp::k_elu_grad, {c.full(0), c.full(1)}, {c.result()});
  instruction.f[0] = static_cast<float>(c.attrs().real_or("alpha", 1.0));
}
void compile_gelu(Compiler& c) {
  unary(c, c.attrs().flag("approximate") ? TileOp::k_gelu_tanh : TileOp::k_gelu, 3 * kExpWork);
}
void compile_gelu_grad(Compiler& c) {
  const TileOp op = c.attrs().flag("approximate") ? TileOp::k_gelu_tanh_grad : TileOp::k_gelu_grad;
  c.emit(op, {c.full(0), c.full(1)}, {c.result()}, 4 * kExpWork);
}

void compile_dropout(Compiler& c) {
  auto& instruction = c.emit(TileOp::k_dropout, {c.full(0), c.whole(1), c.whole(2)}, {c.result()}, kPhiloxWork);
  const double rate = c.attrs().real("rate");
  instruction.f[0] = static_cast<float>(rate);
  instruction.f[1] = static_cast<float>(1.0 / (1.0 - rate));
  const Shape& shape = c.type(0).shape;
  instruction.i[0] = shape.rank() == 0 ? 1 : shape.elements() / shape[0];
  instruction.i[1] = c.attrs().integer("call");
}

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
  const double rows = c.rows(), epsilon = c.attrs().real("epsilon");
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
  c.emit(TileOp::k_accumulate, {c.full(0)}, {{Kind::kAccumulator, sum}});
  c.reduce(sum, [to, n = c.channels()](Inputs, Inputs outputs, const double* sums) {
    if (to == kNone) return;
    auto* y = static_cast<float*>(outputs[static_cast<size_t>(to)]);
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(sums[i]);
  });
}

void compile_batch_norm_grad_stats(Compiler& c) {  // dy, x, mean, var -> dgamma, dbeta
  const int sums_at = c.accumulators(2), dgamma = c.output_index(0), dbeta = c.output_index(1), var = c.raw(3);
  const Operand dy = c.full(0), x = c.full(1), mean = c.copied_vector(2);
  c.emit(TileOp::k_accumulate_centered, {dy, x, mean}, {{Kind::kAccumulator, sums_at}}, 2);
  c.emit(TileOp::k_accumulate, {dy}, {{Kind::kAccumulator, sums_at + 1}});
  c.reduce(sums_at, [=, epsilon = c.attrs().real("epsilon"), n = c.channels()](Inputs inputs, Inputs outputs,
                                                                               const double* sums) {
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
  const Derive shift = [=](Inputs inputs, float* v) {
    for (int64_t i = 0; i < n; ++i) {
      double sum = 0;
      for (int64_t s = 0; s < samples; ++s)
        sum += static_cast<double>(floats(inputs, from)[rows * s / samples * n + i]);
      v[i] = static_cast<float>(sum / static_cast<double>(samples));
    }
  };
  c.emit(TileOp::k_accumulate_moments, {c.full(0), c.vector(shift)},
         {{Kind::kAccumulator, sums_at}, {Kind::kAccumulator, sums_at + 1}}, 3);
  c.reduce(sums_at, [=](Inputs inputs, Inputs outputs, const double* sums) {
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

void compile_clip_value(Compiler& c) {
  c.emit(TileOp::k_clip, {c.full(0)}, {c.result()}).f[0] = static_cast<float>(c.attrs().real("limit"));
}

void compile_l1_l2_grad(Compiler& c) {
  auto& instruction = c.emit(TileOp::k_l1_l2_grad, {c.full(0), c.whole(1)}, {c.result()});
  instruction.f[0] = static_cast<float>(c.attrs().real_or("l1", 0));
  instruction.f[1] = static_cast<float>(2.0 * c.attrs().real_or("l2", 0));
}

void compile_sgd(Compiler& c) {  // w, g, learning_rate, momentum state?
  const bool stateful = c.node().inputs.size() == 4;
  const TileOp op = !stateful                    ? TileOp::k_sgd
                    : c.attrs().flag("nesterov") ? TileOp::k_sgd_nesterov
                                                 : TileOp::k_sgd_momentum;
  std::vector<Operand> in = {c.full(0), c.full(1), c.whole(2)}, out;
  if (stateful) in.push_back(c.full(3));
  out.push_back(c.result(0));
  if (stateful) out.push_back(c.result(1));
  auto& instruction = c.emit(op, std::move(in), std::move(out), 2);
  instruction.f[0] = static_cast<float>(c.attrs().real_or("momentum", 0));
  instruction.f[1] = static_cast<float>(c.attrs().real_or("weight_decay", 0));
}

void compile_adam(Compiler& c) {  // w, g, m, v, learning_rate, iteration
  const double b1 = c.attrs().real("beta_1"), b2 = c.attrs().real("beta_2"),
               decay = c.attrs().real_or("weight_decay", 0);
  const int rate = c.raw(4), iteration = c.raw(5);
  const Operand alpha = c.scalar([=](Inputs inputs, float* result) {
    const auto t = static_cast<double>(*static_cast<const int64_t*>(inputs[static_cast<size_t>(iteration)]));
    const auto learning_rate = static_cast<double>(*floats(inputs, rate));
    *result = static_cast<float>(learning_rate * std::sqrt(1.0 - std::pow(b2, t)) / (1.0 - std::pow(b1, t)));
  });
  const Operand shrink = c.scalar([=](Inputs inputs, float* result) {
    *result = static_cast<float>(static_cast<double>(*floats(inputs, rate)) * decay);
  });
  auto& instruction = c.emit(TileOp::k_adam, {c.full(0), c.full(1), c.full(2), c.full(3), alpha, shrink},
                             {c.result(0), c.result(1), c.result(2)}, 12);
  instruction.f[0] = static_cast<float>(1.0 - b1);
  instruction.f[1] = static_cast<float>(1.0 - b2);
  instruction.f[2] = static_cast<float>(c.attrs().real("epsilon"));
}

void compile_unscale(Compiler& c) {
  c.emit(TileOp::k_unscale, {c.full(0), c.whole(1)}, {c.result()});
}

void compile_keep_if(Compiler& c) {
  c.emit(TileOp::k_keep_if, {c.full(0), c.full(1), c.whole(2)}, {c.result()});
}

using CompileFunction = void (*)(Compiler&);

// Every op that has a tile form.
const std::map<std::string, CompileFunction>& forms() {
  static const std::map<std::string, CompileFunction> kForms = {
#define UNARY(name, work, ...) {#name, [](Compiler& c) { unary(c, TileOp::k_##name, work); }},
#define BINARY(name, work, ...) {#name, [](Compiler& c) { binary(c, TileOp::k_##name, work); }},
#include "backends/cpu/fused/ops.inl"
      {"bias_add", compile_bias_add},
      {"scale", compile_scale},
      {"affine", compile_affine},
      {"cast", compile_cast},
      {"relu", compile_relu},
      {"relu_grad", compile_relu_grad},
      {"elu", compile_elu},
      {"elu_grad", compile_elu_grad},
      {"gelu", compile_gelu},
      {"gelu_grad", compile_gelu_grad},
      {"dropout", compile_dropout},
      {"batch_norm_apply", compile_batch_norm_apply},
      {"batch_norm_input_grad", compile_batch_norm_input_grad},
      {"batch_norm_frozen_grad", compile_batch_norm_frozen_grad},
      {"batch_norm_grad_stats", compile_batch_norm_grad_stats},
      {"batch_norm_stats", compile_batch_norm_stats},
      {"reduce_to", compile_reduce_to},
      {"moving_average", compile_moving_average},
      {"clip_value", compile_clip_value},
      {"l1_l2_grad", compile_l1_l2_grad},
      {"sgd", compile_sgd},
      {"adam", compile_adam},
      {"unscale", compile_unscale},
      {"keep_if", compile_keep_if},
  };
  return kForms;
}

Result<TileProgram> Compiler::run() {
  if (!find_shape()) return fail(ErrorCode::kUnsupported, "tensors of different shapes cannot share one fused kernel");
  for (at_ = 0; at_ < nodes_.size(); ++at_) {
    const auto form = forms().find(node().op);
    if (form == forms().end()) return fail(ErrorCode::kUnsupported, fmt::format("{} has no tile form", node().op));
    form->second(*this);
    if (!error_.empty()) return fail(ErrorCode::kUnsupported, error_);
    release_dead();
  }
  return std::move(program);
}

}  // namespace

bool has_tile_form(const std::string& op) {
  return forms().count(op) != 0;
}

Result<TileProgram> compile_tiles(const Graph& graph, std::span<const Node> nodes, std::span<const ValueId> inputs,
                                  std::span<const ValueId> outputs) {
  return Compiler(graph, nodes, inputs, outputs).run();
}

}  // namespace plimsoll::engine::cpu
