/// @file
/// Recurrent layers: loops over the steps of sequences.
#pragma once

#include "plimsoll/layers.h"

#pragma GCC visibility push(default)
namespace plimsoll::layers {

/// Arguments of SimpleRNN().
struct SimpleRNNOptions {
  std::string activation = "tanh";                    ///< A Keras name whose slope follows from its value: "relu".
  bool use_bias = true;                               ///< Whether a bias is added.
  Initializer kernel_initializer = "glorot_uniform";  ///< The initial values of the input's kernel.
  Initializer recurrent_initializer = "orthogonal";   ///< The initial values of the state's kernel.
  Initializer bias_initializer = "zeros";             ///< The initial values of the bias.
  Regularizer kernel_regularizer = {};                ///< A penalty on the input's kernel.
  Regularizer recurrent_regularizer = {};             ///< A penalty on the state's kernel.
  Regularizer bias_regularizer = {};                  ///< A penalty on the bias.
  double dropout = 0;                                 ///< The share of the inputs that is dropped in training.
  double recurrent_dropout = 0;                       ///< The share of the state that is dropped in training.
  bool return_sequences = false;                      ///< True: returns the output of each step, not only of the last.
  bool return_state = false;                          ///< True: Layer::outputs() also returns the last states.
  bool go_backwards = false;                          ///< True: goes through the steps from the last to the first.
  std::string name = {};                              ///< The layer's name; "": chosen by the model.
  bool trainable = true;                              ///< False: the layer's weights stay as they are.
  std::string dtype = {};                             ///< A dtype policy, "mixed_float16"; "": "float32".
};

/// Arguments of LSTM().
struct LSTMOptions {
  std::string activation = "tanh";                    ///< A Keras name whose slope follows from its value: "relu".
  std::string recurrent_activation = "sigmoid";       ///< The same for the gates.
  bool use_bias = true;                               ///< Whether a bias is added.
  Initializer kernel_initializer = "glorot_uniform";  ///< The initial values of the input's kernel.
  Initializer recurrent_initializer = "orthogonal";   ///< The initial values of the state's kernel.
  Initializer bias_initializer = "zeros";             ///< The initial values of the bias.
  bool unit_forget_bias = true;                       ///< True: the bias of the forget gate begins as ones.
  Regularizer kernel_regularizer = {};                ///< A penalty on the input's kernel.
  Regularizer recurrent_regularizer = {};             ///< A penalty on the state's kernel.
  Regularizer bias_regularizer = {};                  ///< A penalty on the bias.
  double dropout = 0;                                 ///< The share of the inputs that is dropped in training.
  double recurrent_dropout = 0;                       ///< The share of the state that is dropped in training.
  bool return_sequences = false;                      ///< True: returns the output of each step, not only of the last.
  bool return_state = false;                          ///< True: Layer::outputs() also returns the last states.
  bool go_backwards = false;                          ///< True: goes through the steps from the last to the first.
  std::string name = {};                              ///< The layer's name; "": chosen by the model.
  bool trainable = true;                              ///< False: the layer's weights stay as they are.
  std::string dtype = {};                             ///< A dtype policy, "mixed_float16"; "": "float32".
};

/// Arguments of GRU().
struct GRUOptions {
  std::string activation = "tanh";                    ///< A Keras name whose slope follows from its value: "relu".
  std::string recurrent_activation = "sigmoid";       ///< The same for the gates.
  bool use_bias = true;                               ///< Whether biases are added.
  Initializer kernel_initializer = "glorot_uniform";  ///< The initial values of the input's kernel.
  Initializer recurrent_initializer = "orthogonal";   ///< The initial values of the state's kernel.
  Initializer bias_initializer = "zeros";             ///< The initial values of the biases.
  Regularizer kernel_regularizer = {};                ///< A penalty on the input's kernel.
  Regularizer recurrent_regularizer = {};             ///< A penalty on the state's kernel.
  Regularizer bias_regularizer = {};                  ///< A penalty on the biases.
  double dropout = 0;                                 ///< The share of the inputs that is dropped in training.
  double recurrent_dropout = 0;                       ///< The share of the state that is dropped in training.
  bool return_sequences = false;                      ///< True: returns the output of each step, not only of the last.
  bool return_state = false;                          ///< True: Layer::outputs() also returns the last state.
  bool go_backwards = false;                          ///< True: goes through the steps from the last to the first.
  bool reset_after = true;                            ///< False: the reset gate acts before the product with the state.
  std::string name = {};                              ///< The layer's name; "": chosen by the model.
  bool trainable = true;                              ///< False: the layer's weights stay as they are.
  std::string dtype = {};                             ///< A dtype policy, "mixed_float16"; "": "float32".
};

/// Arguments of Bidirectional().
struct BidirectionalOptions {
  std::string merge_mode = "concat";  ///< "concat", "sum", "ave" or "mul".
  std::string name = {};              ///< The layer's name; "": chosen by the model.
  bool trainable = true;              ///< False: the layer's weights stay as they are.
  std::string dtype = {};             ///< A dtype policy, "mixed_float16"; "": "float32".
};

/// @name Sequences
/// @{

Layer SimpleRNN(int64_t units,
                const SimpleRNNOptions& options = {});       ///< A dense layer of the input and its own output.
Layer LSTM(int64_t units, const LSTMOptions& options = {});  ///< Long short-term memory.
Layer GRU(int64_t units, const GRUOptions& options = {});    ///< Gated recurrent units.
/// `layer`, a recurrent layer, over the sequence in both directions. The wrapper has its own weights.
Layer Bidirectional(const Layer& layer, const BidirectionalOptions& options = {});
/// @}

}  // namespace plimsoll::layers
#pragma GCC visibility pop
