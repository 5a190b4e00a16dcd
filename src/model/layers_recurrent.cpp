// SimpleRNN, LSTM, GRU, and RNN with their cells.
#include <fmt/format.h>

#include <array>

#include "model/recurrent.h"

namespace plimsoll::engine {
namespace {

Layer recurrent(Config& c, std::string_view class_name) {
  const std::string where = c.where();
  const auto loop = read_recurrent_loop(c, class_name, "");
  Layer layer;
  if (!loop || loop->cells.empty()) return layer;
  const LoopTensors tensors = read_loop_tensors(c, loop->states());
  layer.least_inputs = layer.most_inputs = tensors.count();
  const size_t outputs = loop->return_state ? 1 + loop->states() : 1;
  layer.outputs = outputs;
  layer.masking = loop->return_sequences ? Masking::kPasses : Masking::kReads;
  layer.draws = loop->draws();
  layer.shape = [=](std::span<const Shape> in, Issues& issues) -> Result<LayerShape> {
    LayerShape shape;
    PLIMSOLL_ASSIGN(shape.outputs, loop->outputs(in[tensors.x], where));
    PLIMSOLL_TRY(check_loop_tensors(tensors, in, std::span(shape.outputs).subspan(1), where, issues));
    PLIMSOLL_TRY(loop->add_weights(in[tensors.x].back(), where, shape.weights));
    if (!loop->return_state) shape.outputs.resize(1);
    return shape;
  };
  layer.build = [=](const BuildCall& call) {
    LoopCall arguments{call.inputs[tensors.x], {}, mask_of_loop(call, tensors), call.weights};
    for (const size_t state : tensors.states) arguments.states.push_back(call.inputs[state]);
    std::vector<ValueId> made = build_loop(call, *loop, arguments);
    made.resize(outputs, kNone);
    return LayerValues(std::move(made));
  };
  return layer;
}

Layer simple_rnn(Config& c) {
  return recurrent(c, "SimpleRNN");
}
Layer lstm(Config& c) {
  return recurrent(c, "LSTM");
}
Layer gru(Config& c) {
  return recurrent(c, "GRU");
}
Layer rnn(Config& c) {
  return recurrent(c, "RNN");
}

constexpr std::array kLayers = {
    LayerClass{"SimpleRNN", simple_rnn},
    LayerClass{"LSTM", lstm},
    LayerClass{"GRU", gru},
    LayerClass{"RNN", rnn},
};

}  // namespace

std::span<const LayerClass> recurrent_layers() {
  return kLayers;
}

}  // namespace plimsoll::engine
