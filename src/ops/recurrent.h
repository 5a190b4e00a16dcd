// The attributes, inputs and outputs of a `recurrent` node and of its gradient: a loop over time whose body is a cell
// (SimpleRNN, LSTM or GRU). The forward pass, the reference and the kernels read a node through this header.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "ops/cell_function.h"
#include "ops/op.h"

namespace plimsoll::engine {

inline constexpr std::array<std::string_view, 13> kCellFunctions = {
    "linear",    "relu",     "relu6",    "leaky_relu", "sigmoid", "hard_sigmoid", "tanh",
    "hard_tanh", "softsign", "softplus", "elu",        "selu",    "exponential"};
std::optional<CellFunction> cell_function(std::string_view name);  // Keras's name

enum class CellKind : uint8_t { kSimple, kLstm, kGru, kGruResetBefore };
std::optional<CellKind> cell_kind(std::string_view name);  // "simple", "lstm", "gru", "gru_reset_before"

// What the node keeps for the backward pass.
enum class CellSaves : uint8_t {
  kNothing,      // there is no backward pass
  kEverything,   // the gates and states of each step
  kCheckpoints,  // the states before every `every` steps; the backward pass computes the steps between them again
};

// Position of an optional input or output; -1 if the node does not have it.
using Slot = int;

struct Recurrent {
  CellKind cell = CellKind::kLstm;
  CellFunction activation = CellFunction::kTanh, recurrent_activation = CellFunction::kSigmoid;
  bool bias = false;
  bool mask = false;                 // [N,T]: a step with at most 0.5 keeps the state
  bool sequences = false;            // the output of each step, else of the last
  bool reverse = false;              // reads the steps from the last to the first
  bool keeps_order = false;          // with `reverse`: writes the outputs at their inputs' steps
  bool zeroes_masked = false;        // a masked step's output is 0, else that of the step before
  int64_t x_masks = 0, h_masks = 0;  // dropout: vectors per sample that multiply the input or state. 0, 1 or gates()
  int64_t every = 0;
  CellSaves saves = CellSaves::kNothing;

  int64_t n = 0, t = 0, d = 0, u = 0;  // samples, steps, input size, units

  int64_t gates() const { return cell == CellKind::kSimple ? 1 : cell == CellKind::kLstm ? 4 : 3; }
  // Vectors of `u` numbers per step that the backward pass needs beside the states: the results of the gates, and with
  // reset_after the part of the candidate that comes from the state.
  int64_t saved() const { return cell == CellKind::kSimple ? 0 : cell == CellKind::kGruResetBefore ? 3 : 4; }
  bool has_carry() const { return cell == CellKind::kLstm; }
  bool is_gru() const { return cell == CellKind::kGru || cell == CellKind::kGruResetBefore; }
  // Whether the output is also the record of the states.
  bool output_is_states() const { return sequences && !zeroes_masked; }
  int64_t checkpoints() const { return every > 0 ? (t + every - 1) / every : 0; }
  // The step of the input, and of the output, that the loop's step `s` belongs to.
  int64_t input_step(int64_t s) const { return reverse ? t - 1 - s : s; }
  int64_t output_step(int64_t s) const { return reverse && keeps_order ? t - 1 - s : s; }

  // Inputs: x [N,T,D], kernel [D,gates*U], recurrent kernel [U,gates*U], h [N,U]; then those below.
  Slot in_carry = -1, in_bias = -1, in_mask = -1, in_x_masks = -1, in_h_masks = -1;
  int inputs = 0;  // of the forward node
  // Outputs: y, h [N,U]; then those below.
  Slot out_carry = -1, out_states = -1, out_gates = -1, out_carries = -1;
  int outputs = 0;
  // Further inputs of the gradient: what was saved, and the gradients of y, h and the carry that exist.
  Slot in_states = -1, in_gates = -1, in_carries = -1, in_dy = -1, in_dh = -1, in_dc = -1;
  int grad_inputs = 0;
  // Outputs of the gradient. dx exists if `input_grad` is set, those of the weights if `weight_grad` is.
  Slot out_dx = -1, out_dw = -1, out_du = -1, out_db = -1, out_dh = -1, out_dc = -1;
  int grad_outputs = 0;
};

// Reads a node whose types have been checked. `x` and `recurrent_kernel` are the shapes of inputs 0 and 2.
Recurrent read_recurrent(const Attrs& attrs, const Shape& x, const Shape& recurrent_kernel);

std::vector<OpDef> recurrent_ops();
void recurrent_reference(const ReferenceCall& call);
void recurrent_grad_reference(const ReferenceCall& call);

}  // namespace plimsoll::engine
