// recurrent: a loop over time (recurrent.h), and recurrent_grad, all gradients of one such loop. The input product is
// part of the loop, so that neither the preactivations nor their gradients of all steps are stored.
#include "ops/recurrent.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/families.h"
#include "ops/util.h"

namespace plimsoll::engine {

std::optional<CellFunction> cell_function(std::string_view name) {
  const auto* found = std::find(kCellFunctions.begin(), kCellFunctions.end(), name);
  if (found == kCellFunctions.end()) return std::nullopt;
  return static_cast<CellFunction>(found - kCellFunctions.begin());
}

std::optional<CellKind> cell_kind(std::string_view name) {
  if (name == "simple") return CellKind::kSimple;
  if (name == "lstm") return CellKind::kLstm;
  if (name == "gru") return CellKind::kGru;
  if (name == "gru_reset_before") return CellKind::kGruResetBefore;
  return std::nullopt;
}

namespace {

int64_t integer_or(const Attrs& attrs, const std::string& key, int64_t otherwise) {
  return attrs.has(key) ? attrs.integer(key) : otherwise;
}

void number_slots(Recurrent& r, const Attrs& attrs) {
  const auto next = [](int& count, bool exists) { return exists ? count++ : -1; };
  const bool everything = r.saves == CellSaves::kEverything, keeps = r.saves != CellSaves::kNothing;
  const bool states = keeps && (r.saves == CellSaves::kCheckpoints || !r.output_is_states());
  r.inputs = 4;
  r.in_carry = next(r.inputs, r.has_carry());
  r.in_bias = next(r.inputs, r.bias);
  r.in_mask = next(r.inputs, r.mask);
  r.in_x_masks = next(r.inputs, r.x_masks > 0);
  r.in_h_masks = next(r.inputs, r.h_masks > 0);
  r.outputs = 2;
  r.out_carry = next(r.outputs, r.has_carry());
  r.out_states = next(r.outputs, states);
  r.out_gates = next(r.outputs, everything && r.saved() > 0);
  r.out_carries = next(r.outputs, keeps && r.has_carry());
  r.grad_inputs = r.inputs;
  r.in_states = next(r.grad_inputs, true);
  r.in_gates = next(r.grad_inputs, everything && r.saved() > 0);
  r.in_carries = next(r.grad_inputs, r.has_carry());
  r.in_dy = next(r.grad_inputs, attrs.flag("dy"));
  r.in_dh = next(r.grad_inputs, attrs.flag("dh"));
  r.in_dc = next(r.grad_inputs, attrs.flag("dc"));
  r.out_dx = next(r.grad_outputs, attrs.flag("input_grad"));
  r.out_dw = next(r.grad_outputs, attrs.flag("weight_grad"));
  r.out_du = next(r.grad_outputs, attrs.flag("weight_grad"));
  r.out_db = next(r.grad_outputs, attrs.flag("weight_grad") && r.bias);
  r.out_dh = next(r.grad_outputs, true);
  r.out_dc = next(r.grad_outputs, r.has_carry());
}

}  // namespace

Recurrent read_recurrent(const Attrs& attrs, const Shape& x, const Shape& recurrent_kernel) {
  Recurrent r;
  r.cell = *cell_kind(attrs.text("cell"));
  r.activation = *cell_function(attrs.text("activation"));
  r.recurrent_activation =
      attrs.has("recurrent_activation") ? *cell_function(attrs.text("recurrent_activation")) : CellFunction::kSigmoid;
  r.bias = attrs.flag("bias");
  r.mask = attrs.flag("mask");
  r.sequences = attrs.flag("sequences");
  r.reverse = attrs.flag("reverse");
  r.keeps_order = attrs.flag("keeps_order");
  r.zeroes_masked = attrs.flag("zeroes_masked");
  r.x_masks = integer_or(attrs, "x_masks", 0);
  r.h_masks = integer_or(attrs, "h_masks", 0);
  r.every = integer_or(attrs, "every", 0);
  r.saves = !attrs.flag("saves") ? CellSaves::kNothing : r.every > 0 ? CellSaves::kCheckpoints : CellSaves::kEverything;
  r.n = x[0];
  r.t = x[1];
  r.d = x[2];
  r.u = recurrent_kernel[0];
  number_slots(r, attrs);
  return r;
}

namespace {

bool check_attrs(InferCheck& check, const Attrs& attrs) {
  if (!check.has("cell", "text") || !check.has("activation", "text") ||
      (attrs.has("recurrent_activation") && !check.has("recurrent_activation", "text")))
    return false;
  for (const char* flag : {"bias", "mask", "sequences", "reverse", "keeps_order", "zeroes_masked", "saves", "dy", "dh",
                           "dc", "input_grad", "weight_grad"})
    if (!check.optional_flag(flag)) return false;
  for (const char* count : {"x_masks", "h_masks", "every"})
    if (attrs.has(count) && !check.integer(count, 0)) return false;
  return check.require(cell_kind(attrs.text("cell")).has_value(),
                       fmt::format("does not know the cell '{}'", attrs.text("cell"))) &&
         check.require(cell_function(attrs.text("activation")).has_value(),
                       fmt::format("does not know the activation '{}'", attrs.text("activation"))) &&
         check.require(!attrs.has("recurrent_activation") || cell_function(attrs.text("recurrent_activation")),
                       "does not know its recurrent_activation");
}

// Checks the inputs of the forward node, with which those of the gradient begin. Returns nullopt if a check failed.
std::optional<Recurrent> check_inputs(InferCheck& check, InTypes in, const Attrs& attrs, bool gradient) {
  if (!check_attrs(check, attrs) || !check.inputs(4, 32) || !check.all_floats() || !check.rank(0, 3) ||
      !check.rank(1, 2) || !check.rank(2, 2))
    return std::nullopt;
  const Recurrent r = read_recurrent(attrs, in[0].shape, in[2].shape);
  const int64_t wide = r.gates() * r.u;
  if (!check.inputs(static_cast<size_t>(gradient ? r.grad_inputs : r.inputs)) ||
      !check.require(r.t >= 1 && r.d >= 1 && r.u >= 1, "needs at least one step, one input and one unit") ||
      !check.require(r.x_masks == 0 || r.x_masks == 1 || r.x_masks == r.gates(), "x_masks must be 0, 1 or the gates") ||
      !check.require(r.h_masks == 0 || r.h_masks == 1 || r.h_masks == r.gates(), "h_masks must be 0, 1 or the gates"))
    return std::nullopt;
  const auto shaped = [&](Slot slot, const Shape& shape, const char* what) {
    return slot < 0 || check.require(in[static_cast<size_t>(slot)].shape == shape,
                                     fmt::format("{} must be [{}]", what, to_text(shape)));
  };
  const bool good = shaped(1, Shape{r.d, wide}, "the kernel") && shaped(2, Shape{r.u, wide}, "the recurrent kernel") &&
                    shaped(3, Shape{r.n, r.u}, "the state") && shaped(r.in_carry, Shape{r.n, r.u}, "the carry") &&
                    shaped(r.in_bias, r.cell == CellKind::kGru ? Shape{2, wide} : Shape{wide}, "the bias") &&
                    shaped(r.in_mask, Shape{r.n, r.t}, "the mask") &&
                    shaped(r.in_x_masks, Shape{r.n, r.x_masks * r.d}, "x_masks") &&
                    shaped(r.in_h_masks, Shape{r.n, r.h_masks * r.u}, "h_masks");
  return good ? std::optional(r) : std::nullopt;
}

Shape output_shape(const Recurrent& r) {
  return r.sequences ? Shape{r.n, r.t, r.u} : Shape{r.n, r.u};
}
Shape saved_states(const Recurrent& r) {
  return Shape{r.n, r.saves == CellSaves::kCheckpoints ? r.checkpoints() : r.t, r.u};
}

Result<Types> infer_forward(InTypes in, const Attrs& attrs) {
  InferCheck check("recurrent", in, attrs);
  const auto r = check_inputs(check, in, attrs, false);
  if (!r) return check.failed();
  const DType dtype = in[0].dtype;
  Types types = {{dtype, output_shape(*r)}, {dtype, Shape{r->n, r->u}}};
  if (r->out_carry >= 0) types.push_back({dtype, Shape{r->n, r->u}});
  if (r->out_states >= 0) types.push_back({dtype, saved_states(*r)});
  if (r->out_gates >= 0) types.push_back({dtype, Shape{r->n, r->t, r->saved() * r->u}});
  if (r->out_carries >= 0) types.push_back({dtype, saved_states(*r)});
  return check.outputs(std::move(types));
}

Result<Types> infer_grad(InTypes in, const Attrs& attrs) {
  InferCheck check("recurrent_grad", in, attrs);
  const auto r = check_inputs(check, in, attrs, true);
  if (!r || !check.require(r->saves != CellSaves::kNothing, "needs what the loop saved")) return check.failed();
  const auto shaped = [&](Slot slot, const Shape& shape, const char* what) {
    if (slot >= 0)
      check.require(in[static_cast<size_t>(slot)].shape == shape, fmt::format("{} must be [{}]", what, to_text(shape)));
  };
  shaped(r->in_states, saved_states(*r), "the states");
  shaped(r->in_gates, Shape{r->n, r->t, r->saved() * r->u}, "the gates");
  shaped(r->in_carries, saved_states(*r), "the carries");
  shaped(r->in_dy, output_shape(*r), "dy");
  shaped(r->in_dh, Shape{r->n, r->u}, "dh");
  shaped(r->in_dc, Shape{r->n, r->u}, "dc");
  Types types;
  if (r->out_dx >= 0) types.push_back(in[0]);
  if (r->out_dw >= 0) types.push_back(in[1]);
  if (r->out_du >= 0) types.push_back(in[2]);
  if (r->out_db >= 0) types.push_back(in[static_cast<size_t>(r->in_bias)]);
  types.push_back(in[3]);
  if (r->out_dc >= 0) types.push_back(in[3]);
  return check.outputs(std::move(types));
}

std::vector<ValueId> gradient(const GradientCall& g) {
  Attrs attrs = g.node.attrs;
  Recurrent r = read_recurrent(attrs, g.type(g.in(0)).shape, g.type(g.in(2)).shape);
  assert(r.saves != CellSaves::kNothing);
  std::vector<ValueId> inputs = g.node.inputs;
  inputs.push_back(r.out_states >= 0 ? g.out(static_cast<size_t>(r.out_states)) : g.out(0));
  for (const Slot saved : {r.out_gates, r.out_carries})
    if (saved >= 0) inputs.push_back(g.out(static_cast<size_t>(saved)));
  const auto arrives = [&](const char* name, Slot output) {
    if (output < 0 || g.grad(static_cast<size_t>(output)) == kNone) return;
    attrs.set(name, true);
    inputs.push_back(g.grad(static_cast<size_t>(output)));
  };
  arrives("dy", 0);
  arrives("dh", 1);
  arrives("dc", r.out_carry);
  if (g.wants(0)) attrs.set("input_grad", true);
  if (g.wants(1) || g.wants(2) || (r.in_bias >= 0 && g.wants(static_cast<size_t>(r.in_bias))))
    attrs.set("weight_grad", true);
  r = read_recurrent(attrs, g.type(g.in(0)).shape, g.type(g.in(2)).shape);
  const std::vector<ValueId> made = g.b.add("recurrent_grad", std::move(inputs), std::move(attrs));
  std::vector<ValueId> grads(g.node.inputs.size(), kNone);
  const auto returns = [&](Slot input, Slot output) {
    if (input >= 0 && output >= 0 && !made.empty() && g.wants(static_cast<size_t>(input)))
      grads[static_cast<size_t>(input)] = made[static_cast<size_t>(output)];
  };
  returns(0, r.out_dx);
  returns(1, r.out_dw);
  returns(2, r.out_du);
  returns(r.in_bias, r.out_db);
  returns(3, r.out_dh);
  returns(r.in_carry, r.out_dc);
  return grads;
}

double products(InTypes in, const Attrs& attrs, double times) {
  const Recurrent r = read_recurrent(attrs, in[0].shape, in[2].shape);
  const double steps = static_cast<double>(r.n) * static_cast<double>(r.t);
  return times * 2 * steps * static_cast<double>(r.d + r.u) * static_cast<double>(r.gates() * r.u) +
         steps * 40 * static_cast<double>(r.u);
}

// The parts of a case: sizes, and what is optional.
struct Sizes {
  const char* cell;
  int64_t n, t, d, u;
};

OpCase forward_case(std::string name, const Sizes& s, Attrs attrs) {
  attrs.set("cell", std::string(s.cell));
  attrs.set("saves", true);
  if (!attrs.has("activation")) attrs.set("activation", std::string("tanh"));
  const Recurrent r = read_recurrent(attrs, Shape{s.n, s.t, s.d}, Shape{s.u, s.u});
  const int64_t wide = r.gates() * s.u;
  OpCase one{std::move(name),
             {f32({s.n, s.t, s.d}), f32({s.d, wide}), f32({s.u, wide}), f32({s.n, s.u})},
             std::move(attrs),
             {"normal", "small", "small", "normal"},
             {0, 1, 2, 3}};
  const auto more = [&](TensorType type, const char* fill, bool differentiable) {
    if (differentiable) one.differentiate.push_back(one.inputs.size());
    one.inputs.push_back(std::move(type));
    one.fill.emplace_back(fill);
  };
  if (r.in_carry >= 0) more(f32({s.n, s.u}), "normal", true);
  if (r.in_bias >= 0) more(r.cell == CellKind::kGru ? f32({2, wide}) : f32({wide}), "normal", true);
  if (r.in_mask >= 0) more(f32({s.n, s.t}), "uniform", false);
  if (r.in_x_masks >= 0) more(f32({s.n, r.x_masks * s.d}), "uniform", false);
  if (r.in_h_masks >= 0) more(f32({s.n, r.h_masks * s.u}), "uniform", false);
  return one;
}

// The same case for the gradient: what was saved is drawn, so it is no record of a real run.
OpCase grad_case(const OpCase& forward) {
  OpCase one = forward;
  one.differentiate.clear();
  for (const char* flag : {"dy", "dh", "dc", "input_grad", "weight_grad"}) one.attrs.set(flag, true);
  Recurrent r = read_recurrent(one.attrs, one.inputs[0].shape, one.inputs[2].shape);
  if (r.out_carry < 0) one.attrs.set("dc", false);
  r = read_recurrent(one.attrs, one.inputs[0].shape, one.inputs[2].shape);
  const auto more = [&](Slot slot, Shape shape, const char* fill) {
    if (slot < 0) return;
    one.inputs.push_back({DType::kFloat32, std::move(shape)});
    one.fill.emplace_back(fill);
  };
  more(r.in_states, saved_states(r), "normal");
  more(r.in_gates, Shape{r.n, r.t, r.saved() * r.u}, "uniform");
  more(r.in_carries, saved_states(r), "normal");
  more(r.in_dy, output_shape(r), "normal");
  more(r.in_dh, Shape{r.n, r.u}, "normal");
  more(r.in_dc, Shape{r.n, r.u}, "normal");
  return one;
}

std::vector<OpCase> forward_cases() {
  std::vector<OpCase> cases;
  const auto flags = [](std::initializer_list<const char*> names) {
    Attrs attrs;
    for (const char* name : names) attrs.set(name, true);
    return attrs;
  };
  const auto with = [](Attrs attrs, const char* key, Attr value) {
    attrs.set(key, std::move(value));
    return attrs;
  };
  for (const char* cell : {"simple", "lstm", "gru", "gru_reset_before"}) {
    const std::string c = cell;
    const int64_t gates = c == "simple" ? 1 : c == "lstm" ? 4 : 3;
    const Attrs sequences = flags({"bias", "sequences"}), masked = flags({"bias", "sequences", "mask"});
    cases.push_back(forward_case(c + "_last", {cell, 3, 4, 5, 3}, flags({"bias"})));
    cases.push_back(forward_case(c + "_plain", {cell, 1, 1, 1, 1}, {}));
    cases.push_back(forward_case(c + "_sequences", {cell, 2, 5, 3, 4}, sequences));
    cases.push_back(forward_case(c + "_masked", {cell, 3, 6, 2, 3}, masked));
    cases.push_back(forward_case(c + "_masked_last", {cell, 3, 5, 2, 3}, flags({"mask", "reverse"})));
    cases.push_back(forward_case(c + "_zeroes", {cell, 3, 6, 2, 3}, with(masked, "zeroes_masked", true)));
    cases.push_back(forward_case(c + "_backwards", {cell, 2, 4, 3, 2}, with(masked, "reverse", true)));
    Attrs ordered = with(with(masked, "reverse", true), "keeps_order", true);
    cases.push_back(forward_case(c + "_in_order", {cell, 2, 5, 3, 2}, ordered));
    cases.push_back(forward_case(c + "_checkpoints", {cell, 3, 7, 2, 3}, with(masked, "every", int64_t{3})));
    cases.push_back(forward_case(c + "_checkpoints_backwards", {cell, 2, 8, 2, 3}, with(ordered, "every", int64_t{4})));
    Attrs one_mask = with(with(sequences, "x_masks", int64_t{1}), "h_masks", int64_t{1});
    cases.push_back(forward_case(c + "_dropout", {cell, 2, 4, 3, 2}, one_mask));
    Attrs gate_masks = with(with(masked, "x_masks", gates), "h_masks", gates);
    cases.push_back(forward_case(c + "_gate_dropout", {cell, 3, 4, 3, 5}, with(gate_masks, "every", int64_t{2})));
    cases.push_back(forward_case(c + "_wide", {cell, 13, 9, 33, 37}, masked));
    cases.back().differentiate.clear();
  }
  for (const std::string_view name : kCellFunctions) {
    Attrs attrs = with(flags({"bias", "sequences"}), "activation", std::string(name));
    cases.push_back(forward_case("simple_" + std::string(name), {"simple", 2, 3, 3, 4}, attrs));
    attrs.set("recurrent_activation", std::string(name));
    attrs.set("activation", std::string("tanh"));
    cases.push_back(forward_case("gru_" + std::string(name), {"gru", 2, 3, 3, 2}, attrs));
  }
  return cases;
}

OpDef forward_op() {
  OpDef op;
  op.name = "recurrent";
  op.recompute = Recompute::kCostly;
  op.infer = infer_forward;
  op.gradient = gradient;
  op.reference = recurrent_reference;
  op.flops = [](InTypes in, InTypes, const Attrs& attrs) { return products(in, attrs, 1); };
  // A step adds the errors of two products and of the cell's functions; the states carry them on.
  op.error_units = 32;
  op.cases = forward_cases();
  return op;
}

OpDef grad_op() {
  OpDef op;
  op.name = "recurrent_grad";
  op.recompute = Recompute::kNever;
  op.infer = infer_grad;
  op.reference = recurrent_grad_reference;
  op.flops = [](InTypes in, InTypes, const Attrs& attrs) {
    return products(in, attrs, attrs.has("every") && attrs.integer("every") > 0 ? 3 : 2);
  };
  op.error_units = 48;
  for (const OpCase& one : forward_cases()) op.cases.push_back(grad_case(one));
  return op;
}

}  // namespace

std::vector<OpDef> recurrent_ops() {
  return {forward_op(), grad_op()};
}

}  // namespace plimsoll::engine
