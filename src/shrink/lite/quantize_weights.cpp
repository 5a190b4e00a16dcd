// Weights with fewer bits, and the scaling of channels between layers.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "shrink/lite/fixed_point.h"
#include "shrink/lite/quantize.h"

namespace plimsoll::engine::lite {
namespace {

// Smaller weights stay as they are: their scales and the additional operators would cost more.
constexpr int64_t kFewestElements = 1024;

uint16_t half_of(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000U);
  const float size = std::abs(value);
  if (!(size < 65520)) return static_cast<uint16_t>(sign | (std::isnan(value) ? 0x7E00U : 0x7BFFU));
  int exponent = 0;
  std::frexp(size, &exponent);
  const int step = std::max(exponent - 11, -24);  // the power of two of the last bit
  const auto units = static_cast<uint32_t>(std::nearbyint(std::ldexp(size, -step)));
  // A carry into the exponent gives the right bits by itself.
  return static_cast<uint16_t>(sign | (step == -24 ? units : (static_cast<uint32_t>(step + 24) << 10) + units));
}

}  // namespace

int32_t channel_axis(Op op) {
  return op == Op::kConv || op == Op::kFullyConnected ? 0 : op == Op::kDepthwiseConv ? 3 : -1;
}

Tensor int8_weights(const Tensor& weights, int32_t axis) {
  Tensor made;
  made.name = weights.name;
  made.shape = weights.shape;
  made.type = Type::kInt8;
  made.layer = weights.layer;
  const auto channels = static_cast<size_t>(weights.shape[static_cast<size_t>(axis)]);
  const auto values = weights.as<float>();
  const size_t inner = axis == 0 ? values.size() / channels : 1;
  std::vector<float> largest(channels);
  for (size_t i = 0; i < values.size(); ++i) {
    float& most = largest[i / inner % channels];
    most = std::max(most, std::abs(values[i]));
  }
  for (const float most : largest) {
    made.quantization.scales.push_back(std::max(most / 127, 1e-12F));
    made.quantization.zeros.push_back(0);
  }
  made.quantization.axis = axis;
  made.data.resize(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const float q = std::round(values[i] / made.quantization.scales[i / inner % channels]);
    made.as<int8_t>()[i] = static_cast<int8_t>(std::clamp(q, -127.0F, 127.0F));
  }
  return made;
}

Model quantize_float16(const Model& model) {
  Model made = model;
  std::vector<Operator> widening;
  for (size_t i = 0; i < model.tensors.size(); ++i) {
    if (!model.tensors[i].constant() || model.tensors[i].type != Type::kFloat32 || model.tensors[i].elements() < 16)
      continue;
    Tensor half = model.tensors[i];
    half.name += "_float16";
    half.type = Type::kFloat16;
    const auto values = model.tensors[i].as<float>();
    half.data.resize(values.size() * 2);
    for (size_t e = 0; e < values.size(); ++e) half.as<uint16_t>()[e] = half_of(values[e]);
    made.tensors[i].data.clear();
    made.tensors.push_back(std::move(half));
    widening.push_back(
        {Op::kDequantize, {static_cast<int32_t>(made.tensors.size()) - 1}, {static_cast<int32_t>(i)}, {}});
  }
  made.operators.insert(made.operators.begin(), widening.begin(), widening.end());
  return made;
}

Model quantize_weights(const Model& model, const std::function<bool(const std::string&)>& keeps_float) {
  Model made = model;
  for (const Operator& node : model.operators) {
    const int32_t axis = channel_axis(node.op);
    if (axis < 0) continue;
    Tensor& weights = made.tensor(node.inputs[1]);
    if (weights.type != Type::kFloat32 || !weights.constant() || weights.elements() < kFewestElements) continue;
    if (keeps_float && keeps_float(model.tensor(node.outputs[0]).layer)) continue;
    weights = int8_weights(weights, axis);
  }
  return made;
}

Bytes weight_bytes(const Model& model, const std::string& layer) {
  Bytes sum = 0;
  for (const Tensor& t : model.tensors)
    if (t.constant() && t.layer == layer) sum += t.bytes() + 12 * static_cast<Bytes>(t.quantization.scales.size());
  return sum;
}

int equalize(Model& model) {
  std::vector<int> readers(model.tensors.size());
  std::vector<const Operator*> producer(model.tensors.size());
  for (const Operator& node : model.operators)
    for (const int32_t i : node.inputs)
      if (i >= 0) ++readers[static_cast<size_t>(i)];
  for (const int32_t i : model.outputs) ++readers[static_cast<size_t>(i)];
  for (const Operator& node : model.operators) producer[static_cast<size_t>(node.outputs[0])] = &node;
  const auto once = [&](int32_t i) { return readers[static_cast<size_t>(i)] == 1; };
  int changed = 0;
  for (const Operator& second : model.operators) {
    if (channel_axis(second.op) < 0 || !once(second.inputs[1])) continue;
    const Operator* first = producer[static_cast<size_t>(second.inputs[0])];
    if (first == nullptr || channel_axis(first->op) < 0 || !once(second.inputs[0]) || !once(first->inputs[1]) ||
        !once(first->inputs[2]))
      continue;
    // Only these activations pass a positive factor through.
    if (first->options.activation != Activation::kNone && first->options.activation != Activation::kRelu) continue;
    const auto w1 = model.tensor(first->inputs[1]).as<float>(), b1 = model.tensor(first->inputs[2]).as<float>(),
               w2 = model.tensor(second.inputs[1]).as<float>();
    const size_t channels = b1.size(), each = w1.size() / channels;
    const bool first_depthwise = first->op == Op::kDepthwiseConv, second_depthwise = second.op == Op::kDepthwiseConv;
    const auto inner = static_cast<size_t>(model.tensor(second.inputs[1]).shape.back());
    const auto multiplier = static_cast<size_t>(second.options.multiplier);
    if (second_depthwise ? inner != channels * multiplier : inner != channels)
      continue;  // grouped, or flattened between
    const auto of1 = [&](size_t i) { return first_depthwise ? i % channels : i / each; };
    const auto of2 = [&](size_t i) { return second_depthwise ? i % inner / multiplier : i % inner; };
    std::vector<float> r1(channels), r2(channels), factor(channels, 1.0F);
    for (size_t i = 0; i < w1.size(); ++i) r1[of1(i)] = std::max(r1[of1(i)], std::abs(w1[i]));
    for (size_t i = 0; i < w2.size(); ++i) r2[of2(i)] = std::max(r2[of2(i)], std::abs(w2[i]));
    for (size_t c = 0; c < channels; ++c)
      if (r1[c] > 0 && r2[c] > 0) factor[c] = std::clamp(std::sqrt(r2[c] / r1[c]), 1e-2F, 1e2F);
    for (size_t i = 0; i < w1.size(); ++i) w1[i] *= factor[of1(i)];
    for (size_t c = 0; c < channels; ++c) b1[c] *= factor[c];
    for (size_t i = 0; i < w2.size(); ++i) w2[i] /= factor[of2(i)];
    ++changed;
  }
  return changed;
}

}  // namespace plimsoll::engine::lite
