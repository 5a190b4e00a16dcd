// Recurrent cells and the loop over time that runs them, for the layers SimpleRNN, LSTM, GRU, RNN and Bidirectional.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/layer.h"

namespace plimsoll::engine {

// A cell as its configuration describes it.
struct RecurrentCell {
  std::string kind;  // of op `recurrent`: "simple", "lstm", "gru", "gru_reset_before"
  std::string name;  // in front of its weights' names: "lstm_cell"
  std::string path;  // of its weights in the layer's group of the file: "cell"
  int64_t units = 1;
  bool use_bias = true, unit_forget_bias = false, trainable = true;
  std::string activation = "tanh", recurrent_activation = "sigmoid";
  WeightConfig kernel, recurrent_kernel, bias;
  double dropout = 0, recurrent_dropout = 0;

  int64_t gates() const { return kind == "simple" ? 1 : kind == "lstm" ? 4 : 3; }
  size_t states() const { return kind == "lstm" ? 2 : 1; }
  size_t weights() const { return use_bias ? 3 : 2; }
};

// One direction: cells that run one after the other at each step.
struct RecurrentLoop {
  std::vector<RecurrentCell> cells;
  bool return_sequences = false, return_state = false, go_backwards = false, zero_output_for_mask = false;
  bool trainable = true;

  size_t states() const;
  bool draws() const;
  // Appends the weights for inputs of `size` numbers per step.
  Status add_weights(int64_t size, const std::string& where, std::vector<WeightSpec>& weights) const;
  Result<std::vector<Shape>> outputs(const Shape& in, const std::string& where) const;  // the output and the states
};

// Reads the configuration of SimpleRNN, LSTM, GRU or RNN; nullopt for any other class. `path` is the group of the
// layer: "" or "forward_layer/".
std::optional<RecurrentLoop> read_recurrent_loop(Config& c, std::string_view class_name, const std::string& path);

// How a loop is called.
struct LoopCall {
  ValueId x;
  std::vector<ValueId> states;  // initial ones; empty: zeros
  ValueId mask = kNone;
  std::span<const ValueId> weights;
  bool keeps_order = false;  // outputs of a loop that goes backwards are in the input's order
  int64_t stream = 0;        // the first of the streams of random numbers it may draw from
};
// Returns the output and the states after the last step.
std::vector<ValueId> build_loop(const BuildCall& call, const RecurrentLoop& loop, const LoopCall& arguments);

// The tensors of a recurrent layer's call, as numbers of the call's inputs.
struct LoopTensors {
  size_t x = 0;
  std::vector<size_t> states;
  std::optional<size_t> mask;  // given as an argument; otherwise the mask of x counts

  size_t count() const { return 1 + states.size() + (mask ? 1 : 0); }
};
LoopTensors read_loop_tensors(Config& c, size_t states);
Status check_loop_tensors(const LoopTensors& tensors, std::span<const Shape> in, std::span<const Shape> states,
                          const std::string& where, Issues& issues);
ValueId mask_of_loop(const BuildCall& call, const LoopTensors& tensors);

std::span<const LayerClass> recurrent_layers();
std::span<const LayerClass> bidirectional_layers();
std::span<const LayerClass> conv_lstm_layers();

}  // namespace plimsoll::engine
