#include <algorithm>
#include <numeric>

#include "shrink/lite/convert.h"

namespace plimsoll::engine::lite {
namespace {

class Simplifier {
 public:
  explicit Simplifier(Model& model) : m_(model), alias_(model.tensors.size()), producer_(alias_.size(), -1) {
    std::iota(alias_.begin(), alias_.end(), 0);
    readers_.resize(alias_.size());
    for (const Operator& node : m_.operators)
      for (const int32_t i : node.inputs)
        if (i >= 0) ++readers_[static_cast<size_t>(i)];
    for (const int32_t i : m_.outputs) ++readers_[static_cast<size_t>(i)];
  }

  void run() {
    std::vector<Operator> kept;
    for (Operator& node : m_.operators) {
      for (int32_t& i : node.inputs)
        if (i >= 0) i = alias_[static_cast<size_t>(i)];
      if (absorbed(kept, node)) continue;
      for (const int32_t i : node.outputs) producer_[static_cast<size_t>(i)] = static_cast<int32_t>(kept.size());
      kept.push_back(std::move(node));
    }
    m_.operators = std::move(kept);
    for (int32_t& i : m_.outputs) i = alias_[static_cast<size_t>(i)];
    remove_unused(m_);
  }

 private:
  int readers(int32_t i) const { return readers_[static_cast<size_t>(i)]; }

  // Returns whether `node` has become part of the operator before it.
  bool absorbed(std::vector<Operator>& kept, const Operator& node) {
    const int32_t x = node.inputs[0];
    if (x < 0 || readers(x) != 1) return false;
    const int32_t at = producer_[static_cast<size_t>(x)];
    if (at < 0) return false;
    Operator& before = kept[static_cast<size_t>(at)];
    if (node.op == Op::kReshape && before.op == Op::kReshape) {
      // The new one takes the place of the old: it reads the same tensor.
      before.inputs[1] = node.inputs[1];
      m_.tensor(x).shape = m_.tensor(node.outputs[0]).shape;
    } else if (node.op == Op::kRelu || node.op == Op::kRelu6) {
      if (!takes_activation(before.op) || before.options.activation != Activation::kNone) return false;
      before.options.activation = node.op == Op::kRelu ? Activation::kRelu : Activation::kRelu6;
    } else if (node.op == Op::kAdd || node.op == Op::kMul || node.op == Op::kSub) {
      if (!fold_constant(before, node)) return false;
    } else {
      return false;
    }
    alias_[static_cast<size_t>(node.outputs[0])] = x;
    readers_[static_cast<size_t>(x)] = readers(node.outputs[0]);
    if (m_.tensor(x).layer.empty()) m_.tensor(x).layer = m_.tensor(node.outputs[0]).layer;
    return true;
  }

  static bool takes_activation(Op op) {
    return op == Op::kConv || op == Op::kDepthwiseConv || op == Op::kFullyConnected || op == Op::kAdd ||
           op == Op::kMul || op == Op::kSub || op == Op::kAveragePool || op == Op::kMaxPool;
  }

  // A constant factor or offset per channel becomes part of the weights and the bias.
  bool fold_constant(Operator& before, const Operator& node) {
    const bool depthwise = before.op == Op::kDepthwiseConv;
    if (before.op != Op::kConv && before.op != Op::kFullyConnected && !depthwise) return false;
    if (before.options.activation != Activation::kNone || node.options.activation != Activation::kNone) return false;
    const Tensor& constant = m_.tensor(node.inputs[1]);
    Tensor &weights = m_.tensor(before.inputs[1]), &bias = m_.tensor(before.inputs[2]);
    if (!constant.constant() || constant.type != Type::kFloat32 || readers(before.inputs[1]) != 1 ||
        readers(before.inputs[2]) != 1)
      return false;
    const auto channels = static_cast<size_t>(bias.elements());
    const auto given = constant.as<float>();
    if (given.size() != 1 && (given.size() != channels || constant.shape.back() != bias.shape[0])) return false;
    const auto of = [&](size_t channel) { return given.size() == 1 ? given[0] : given[channel]; };
    const auto b = bias.as<float>();
    if (node.op != Op::kMul) {
      for (size_t o = 0; o < channels; ++o) b[o] += node.op == Op::kAdd ? of(o) : -of(o);
      return true;
    }
    const auto w = weights.as<float>();
    const size_t each = w.size() / channels;
    for (size_t o = 0; o < channels; ++o) {
      b[o] *= of(o);
      for (size_t i = 0; i < each; ++i) w[depthwise ? i * channels + o : o * each + i] *= of(o);
    }
    return true;
  }

  Model& m_;
  std::vector<int32_t> alias_, producer_;
  std::vector<int> readers_;
};

}  // namespace

void simplify(Model& model) {
  Simplifier(model).run();
}

void remove_unused(Model& model) {
  std::vector<bool> needed(model.tensors.size());
  const auto need = [&](int32_t i) {
    if (i >= 0) needed[static_cast<size_t>(i)] = true;
  };
  for (const int32_t i : model.outputs) need(i);
  for (const int32_t i : model.inputs) need(i);
  std::vector<Operator> operators;
  for (auto node = model.operators.rbegin(); node != model.operators.rend(); ++node) {
    if (std::none_of(node->outputs.begin(), node->outputs.end(),
                     [&](int32_t i) { return needed[static_cast<size_t>(i)]; }))
      continue;
    for (const int32_t i : node->inputs) need(i);
    for (const int32_t i : node->outputs) need(i);
    operators.push_back(std::move(*node));
  }
  std::reverse(operators.begin(), operators.end());
  std::vector<int32_t> number(model.tensors.size(), -1);
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < needed.size(); ++i) {
    if (!needed[i]) continue;
    number[i] = static_cast<int32_t>(tensors.size());
    tensors.push_back(std::move(model.tensors[i]));
  }
  const auto renumber = [&](std::vector<int32_t>& list) {
    for (int32_t& i : list)
      if (i >= 0) i = number[static_cast<size_t>(i)];
  };
  for (Operator& node : operators) {
    renumber(node.inputs);
    renumber(node.outputs);
  }
  renumber(model.inputs);
  renumber(model.outputs);
  model.tensors = std::move(tensors);
  model.operators = std::move(operators);
}

}  // namespace plimsoll::engine::lite
