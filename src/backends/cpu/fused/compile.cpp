// Compiles element-wise nodes to tile instructions, with one function per op. Ops that are a single expression are
// listed in ops.inl instead. A comment after a signature lists the node's inputs (and -> outputs); `?` marks optional
// ones.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "backends/common/elementwise.h"
#include "backends/cpu/fused/compiler.h"
#include "backends/cpu/fused/tile_view.h"
#include "ops/predicates.h"
#include "ops/split.h"

namespace plimsoll::engine::cpu {

using Kind = Operand::Kind;

bool Compiler::find_shape() {
  bool by_channel = false, sums = false;
  const Shape* shape = nullptr;
  for (const Node& n : nodes_) {
    const Shape& s = graph_.type(is_channel_sum(n.op) ? n.inputs[0] : n.outputs[0]).shape;
    if (shape != nullptr && s != *shape) return false;
    shape = &s;
    by_channel = by_channel || uses_channels(n.op);
    if (!is_channel_sum(n.op)) continue;
    const int64_t segments = n.op == "reduce_to" ? summed_segments(s, graph_.type(n.outputs[0]).shape) : 1;
    if (segments == 0 || (sums && segments != program.segments)) return false;
    program.segments = segments;
    sums = true;
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
  const TensorType& type = graph_.type(id);
  if (type.shape.elements() != program.elements()) refuse("reads a tensor of a different shape");
  const Operand in{Kind::kInput, static_cast<int>(found - inputs_.begin()), static_cast<int>(size_of(type.dtype))};
  if (!is_half(type.dtype)) return in;
  const Operand wide = new_register();
  places_[id] = wide;
  emit(type.dtype == DType::kBFloat16 ? TileOp::k_from_bf16 : TileOp::k_from_f16, {in}, {wide}, kHalfWork);
  return wide;
}

Operand Compiler::new_register() {
  if (free_registers_.empty()) return {Kind::kRegister, program.registers++};
  const int index = free_registers_.back();
  free_registers_.pop_back();
  return {Kind::kRegister, index};
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

Operand Compiler::number(size_t i) {
  if (!is_half(type(i).dtype)) return whole(i);
  const int from = raw(i);
  return scalar([from, dtype = type(i).dtype](Inputs inputs, float* result) {
    widen(dtype, inputs[static_cast<size_t>(from)], result, 1);
  });
}

int Compiler::output_index(size_t i) const {
  const auto found = std::find(outputs_.begin(), outputs_.end(), node().outputs[i]);
  return found == outputs_.end() ? kNone : static_cast<int>(found - outputs_.begin());
}

Operand Compiler::result(size_t i) {
  const ValueId id = node().outputs[i];
  const int index = output_index(i);
  const Operand place = index == kNone || is_half(result_dtype(i)) ? new_register() : Operand{Kind::kOutput, index};
  places_[id] = place;
  return place;
}

Operand Compiler::vector(Derive derive) {
  program.vectors.push_back(std::move(derive));
  return {Kind::kVector, static_cast<int>(program.vectors.size()) - 1};
}

Operand Compiler::copied_vector(size_t i) {
  const int from = raw(i);
  return vector([from, dtype = type(i).dtype, c = channels()](Inputs inputs, float* v) {
    widen(dtype, inputs[static_cast<size_t>(from)], v, c);
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

bool Compiler::is_half_output(ValueId id) const {
  return is_half(graph_.type(id).dtype) && std::find(outputs_.begin(), outputs_.end(), id) != outputs_.end();
}

// Later nodes read what they would read from memory, so a result has the same bits whatever is fused.
void Compiler::round_half_results() {
  for (ValueId id : node().outputs) {
    const DType dtype = graph_.type(id).dtype;
    const auto place = places_.find(id);
    if (!is_half(dtype) || place == places_.end() || !read_later(id)) continue;
    const Operand at = place->second;
    emit(dtype == DType::kBFloat16 ? TileOp::k_round_bf16 : TileOp::k_round_f16, {at}, {at}, kHalfWork);
  }
}

// Half-precision outputs are written last, because the plan may place them over inputs.
void Compiler::store_half_outputs() {
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const auto place = places_.find(outputs_[i]);
    if (!is_half_output(outputs_[i]) || place == places_.end()) continue;
    const bool brain = graph_.type(outputs_[i]).dtype == DType::kBFloat16;
    emit(brain ? TileOp::k_to_bf16 : TileOp::k_to_f16, {place->second}, {{Kind::kOutput, static_cast<int>(i), 2}},
         kHalfWork);
  }
}

// Frees the registers whose value no later node reads.
void Compiler::release_dead() {
  for (auto place = places_.begin(); place != places_.end();) {
    if (place->second.kind == Kind::kRegister && !read_later(place->first) && !is_half_output(place->first)) {
      free_registers_.push_back(place->second.index);
      place = places_.erase(place);
    } else {
      ++place;
    }
  }
}

namespace {

void binary(Compiler& c, TileOp op, double work = 1) {
  c.emit(op, {c.full(0), c.full(1)}, {c.result()}, work);
}
void unary(Compiler& c, TileOp op, double work = 1) {
  c.emit(op, {c.full(0)}, {c.result()}, work);
}
void ternary(Compiler& c, TileOp op, double work = 1) {
  c.emit(op, {c.full(0), c.full(1), c.full(2)}, {c.result()}, work);
}

void compile_bias_add(Compiler& c) {
  c.emit(TileOp::k_add, {c.full(0), c.copied_vector(1)}, {c.result()});
}

void compile_channel_scale(Compiler& c) {
  c.emit(TileOp::k_multiply, {c.full(0), c.copied_vector(1)}, {c.result()});
}

void compile_scale(Compiler& c) {
  c.emit(TileOp::k_scale, {c.full(0), c.number(1)}, {c.result()});
}

void compile_affine(Compiler& c) {
  auto& instruction = c.emit(TileOp::k_affine, {c.full(0)}, {c.result()});
  instruction.f[0] = static_cast<float>(c.attrs().real("scale"));
  instruction.f[1] = static_cast<float>(c.attrs().real("offset"));
}

void compile_full_like(Compiler& c) {
  c.emit(TileOp::k_full_like, {c.full(0)}, {c.result()}).f[0] = static_cast<float>(c.attrs().real("value"));
}

void compile_broadcast(Compiler& c) {
  if (c.type(0).shape.elements() == c.program.elements()) return unary(c, TileOp::k_copy);
  const auto view = tile_view(c.type(0).shape, Shape(c.attrs().list("shape")));
  if (!view) return c.refuse("has too many dimensions that cannot be merged");
  const DType dtype = c.type(0).dtype;
  const TileOp op = dtype == DType::kBFloat16  ? TileOp::k_broadcast_bf16
                    : dtype == DType::kFloat16 ? TileOp::k_broadcast_f16
                                               : TileOp::k_broadcast;
  Instruction& instruction = c.emit(op, {c.whole(0)}, {c.result()});
  instruction.view = std::make_shared<const TileView>(*view);
  instruction.i[0] = reinterpret_cast<int64_t>(instruction.view.get());
}

void compile_cast(Compiler& c) {
  static const std::map<DType, TileOp> kFrom = {
      {DType::kFloat32, TileOp::k_copy},    {DType::kUInt8, TileOp::k_from_u8},    {DType::kBool, TileOp::k_from_u8},
      {DType::kInt8, TileOp::k_from_i8},    {DType::kUInt16, TileOp::k_from_u16},  {DType::kInt16, TileOp::k_from_i16},
      {DType::kInt32, TileOp::k_from_i32},  {DType::kUInt32, TileOp::k_from_u32},  {DType::kInt64, TileOp::k_from_i64},
      {DType::kUInt64, TileOp::k_from_u64}, {DType::kFloat64, TileOp::k_from_f64}, {DType::kFloat16, TileOp::k_copy},
      {DType::kBFloat16, TileOp::k_copy}};
  const auto from = kFrom.find(c.type(0).dtype);
  const DType to = c.result_dtype();
  if (from == kFrom.end() || (to != DType::kFloat32 && !is_half(to))) {
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

void set_counters(Instruction& instruction, const Shape& shape, const Attrs& attrs, int64_t call) {
  instruction.i[0] = shape.rank() == 0 ? 1 : shape.elements() / shape[0];
  instruction.i[1] = call;
  instruction.i[5] = rows_before(attrs);
}
void compile_dropout(Compiler& c) {
  const bool shares = c.attrs().has("noise_size") || c.attrs().flag("shared");
  auto& instruction = c.emit(shares ? TileOp::k_dropout_shared : TileOp::k_dropout, {c.full(0), c.whole(1), c.whole(2)},
                             {c.result()}, kPhiloxWork);
  const double rate = c.attrs().real("rate");
  instruction.f[0] = static_cast<float>(rate);
  instruction.f[1] = static_cast<float>(1.0 / (1.0 - rate));
  set_counters(instruction, c.type(0).shape, c.attrs(), c.attrs().integer("call"));
  const DropoutNoise noise(c.attrs(), instruction.i[0]);
  instruction.i[2] = noise.inner;
  instruction.i[3] = noise.size;
  instruction.i[4] = noise.shared ? 1 : 0;
}
void compile_random(Compiler& c, TileOp op, double work) {  // rng, first
  auto& instruction = c.emit(op, {c.whole(0), c.whole(1)}, {c.result()}, work);
  set_counters(instruction, Shape(c.attrs().list("shape")), c.attrs(), random_call(c.attrs()));
}

using CompileFunction = void (*)(Compiler&);

// Every op that has a tile form.
const std::map<std::string, CompileFunction>& forms() {
  static const std::map<std::string, CompileFunction> kForms = [] {
    std::map<std::string, CompileFunction> map = {
#define UNARY(name, work, ...) {#name, [](Compiler& c) { unary(c, TileOp::k_##name, work); }},
#define BINARY(name, work, ...) {#name, [](Compiler& c) { binary(c, TileOp::k_##name, work); }},
#define TERNARY(name, work, ...) {#name, [](Compiler& c) { ternary(c, TileOp::k_##name, work); }},
#include "backends/cpu/fused/ops.inl"
        {"bias_add", compile_bias_add},
        {"channel_scale", compile_channel_scale},
        {"scale", compile_scale},
        {"affine", compile_affine},
        {"full_like", compile_full_like},
        {"broadcast", compile_broadcast},
        {"cast", compile_cast},
        {"relu", compile_relu},
        {"relu_grad", compile_relu_grad},
        {"elu", compile_elu},
        {"elu_grad", compile_elu_grad},
        {"gelu", compile_gelu},
        {"gelu_grad", compile_gelu_grad},
        {"dropout", compile_dropout},
        {"random_uniform", [](Compiler& c) { compile_random(c, TileOp::k_random_uniform, kPhiloxWork); }},
        {"random_normal", [](Compiler& c) { compile_random(c, TileOp::k_random_normal, kPhiloxWork + 3 * kExpWork); }},
    };
    for (const auto& table : {normalization_forms(), update_forms()})
      for (const TileForm& form : table) map[form.op] = form.compile;
    return map;
  }();
  return kForms;
}

}  // namespace

Result<TileProgram> Compiler::run() {
  if (!find_shape()) return fail(ErrorCode::kUnsupported, "tensors of different shapes cannot share one fused kernel");
  for (at_ = 0; at_ < nodes_.size(); ++at_) {
    const auto form = forms().find(node().op);
    if (form == forms().end()) return fail(ErrorCode::kUnsupported, fmt::format("{} has no tile form", node().op));
    form->second(*this);
    if (!error_.empty()) return fail(ErrorCode::kUnsupported, error_);
    round_half_results();
    release_dead();
  }
  store_half_outputs();
  return std::move(program);
}

bool has_tile_form(const std::string& op) {
  return forms().count(op) != 0;
}

Result<TileProgram> compile_tiles(const Graph& graph, std::span<const Node> nodes, std::span<const ValueId> inputs,
                                  std::span<const ValueId> outputs) {
  return Compiler(graph, nodes, inputs, outputs).run();
}

}  // namespace plimsoll::engine::cpu
