#include "shrink/lite/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>

#include "shrink/lite/fixed_point.h"

namespace plimsoll::engine::lite {
namespace {

// A softmax over scores that are this much lower gives 0 in 8 bits.
constexpr float kHiddenDistance = 16;

bool has_integers(Op op) {
  switch (op) {
    case Op::kConv:
    case Op::kDepthwiseConv:
    case Op::kFullyConnected:
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul:
    case Op::kAveragePool:
    case Op::kMaxPool:
    case Op::kConcat:
    case Op::kReshape:
    case Op::kTranspose:
    case Op::kPad:
    case Op::kSlice:
    case Op::kGather:
    case Op::kRelu:
    case Op::kRelu6:
    case Op::kLeakyRelu:
    case Op::kLogistic:
    case Op::kTanh:
    case Op::kElu:
    case Op::kGelu:
    case Op::kSoftmax:
    case Op::kMean:
    case Op::kReduceMax:
    case Op::kBatchMatmul:
    case Op::kResizeNearest:
      return true;
    default:
      return false;
  }
}

// Operators that move elements: their result has the scale of the input.
bool keeps_scale(Op op) {
  return op == Op::kReshape || op == Op::kTranspose || op == Op::kPad || op == Op::kSlice || op == Op::kGather ||
         op == Op::kMaxPool || op == Op::kAveragePool || op == Op::kReduceMax || op == Op::kResizeNearest;
}

// Operators whose result has a scale that TensorFlow Lite prescribes.
const Quantization* prescribed(Op op) {
  static const Quantization kProbability{{1.0F / 256}, {-128}, 0}, kSigned{{1.0F / 128}, {0}, 0};
  if (op == Op::kSoftmax || op == Op::kLogistic) return &kProbability;
  return op == Op::kTanh ? &kSigned : nullptr;
}

Quantization scale_of(Range range) {
  const double low = std::min(0.0F, range.low), high = std::max(0.0F, range.high);
  const double scale = std::max((high - low) / 255, 1e-12);
  const double zero = std::clamp(std::round(-128 - low / scale), -128.0, 127.0);
  return {{static_cast<float>(scale)}, {static_cast<int64_t>(zero)}, 0};
}

Range range_of(std::span<const float> values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return {*low, *high};
}

class Quantizer {
 public:
  Quantizer(const Model& model, const Calibrator& ranges, const Int8Options& options)
      : from_(model), ranges_(ranges), options_(options), group_(model.tensors.size()) {
    std::iota(group_.begin(), group_.end(), 0);
  }

  Int8Model run() {
    choose();
    group();
    for (const int32_t i : from_.inputs) add_input(i);
    for (size_t i = 0; i < from_.operators.size(); ++i) {
      if (integer_[i])
        add_integer(from_.operators[i]);
      else
        add_float(from_.operators[i]);
    }
    for (const int32_t i : from_.outputs) add_output(i);
    made_.model.description = from_.description;
    return std::move(made_);
  }

 private:
  const Tensor& from(int32_t i) const { return from_.tensor(i); }
  bool is_float(int32_t i) const { return i >= 0 && from(i).type == Type::kFloat32; }

  // Which operators run on integers.
  void choose() {
    for (const Operator& node : from_.operators) {
      const std::string& layer = from(node.outputs[0]).layer;
      const bool kept = options_.keeps_float && options_.keeps_float(layer);
      const bool floats = is_float(node.outputs[0]);
      bool integer = floats && !kept && has_integers(node.op) && is_float(node.inputs[0]);
      if (node.op == Op::kReshape && !floats) integer = false;
      integer_.push_back(integer);
      if (!integer && floats && !kept)
        made_.left_float.push_back(layer.empty() ? std::string(name_of(node.op))
                                                 : fmt::format("{}: {}", layer, name_of(node.op)));
    }
    std::sort(made_.left_float.begin(), made_.left_float.end());
    made_.left_float.erase(std::unique(made_.left_float.begin(), made_.left_float.end()), made_.left_float.end());
  }

  int32_t root(int32_t i) {
    while (group_[static_cast<size_t>(i)] != i)
      i = group_[static_cast<size_t>(i)] = group_[static_cast<size_t>(group_[static_cast<size_t>(i)])];
    return i;
  }
  void unite(int32_t a, int32_t b) {
    a = root(a);
    b = root(b);
    if (a == b) return;
    group_[static_cast<size_t>(b)] = a;
    if (const auto found = fixed_.find(b); found != fixed_.end()) fixed_[a] = found->second;
    fixed_.erase(b);
  }

  // Tensors that must have the same scale are one group.
  void group() {
    for (size_t i = 0; i < from_.operators.size(); ++i)
      if (integer_[i])
        if (const Quantization* q = prescribed(from_.operators[i].op)) fixed_[from_.operators[i].outputs[0]] = *q;
    for (size_t i = 0; i < from_.operators.size(); ++i)
      if (integer_[i] && keeps_scale(from_.operators[i].op))
        unite(from_.operators[i].inputs[0], from_.operators[i].outputs[0]);
    // The steps of a loop share weights, so their inputs share a scale, and then they can share a bias too.
    std::map<int32_t, int32_t> read_with;
    for (size_t i = 0; i < from_.operators.size(); ++i) {
      const Operator& node = from_.operators[i];
      if (!integer_[i] || channel_axis(node.op) < 0) continue;
      ++bias_readers_[node.inputs[2]];
      const auto [first, added] = read_with.try_emplace(node.inputs[1], node.inputs[0]);
      if (!added && !fixed_.count(root(node.inputs[0])) && !fixed_.count(root(first->second)))
        unite(first->second, node.inputs[0]);
    }
    for (size_t i = 0; i < from_.operators.size(); ++i) {
      const Operator& node = from_.operators[i];
      if (!integer_[i] || node.op != Op::kConcat) continue;
      for (const int32_t part : node.inputs)  // a part with a prescribed scale is brought to the others' scale
        if (!fixed_.count(root(part)) && !from(part).constant()) unite(node.outputs[0], part);
    }
    for (size_t i = 0; i < from_.tensors.size(); ++i) {
      const auto t = static_cast<int32_t>(i);
      if (!is_float(t)) continue;
      Range own;
      if (from(t).constant())
        own = range_of(from(t).as<float>());
      else
        own = ranges_.range(t, options_.method, options_.percent);
      if (hides_scores(t)) own.low -= kHiddenDistance;
      Range& all = group_range_[root(t)];
      all.low = std::min(all.low, own.low);
      all.high = std::max(all.high, own.high);
    }
  }

  static bool hides(const Tensor& t) {
    const auto values = t.as<float>();
    return t.constant() && t.type == Type::kFloat32 &&
           std::any_of(values.begin(), values.end(), [](float v) { return v < kHiddenBelow; });
  }
  // Returns whether an addition that hides scores makes `tensor`.
  bool hides_scores(int32_t tensor) const {
    for (const Operator& node : from_.operators)
      if (node.outputs[0] == tensor) return node.op == Op::kAdd && node.inputs[1] >= 0 && hides(from(node.inputs[1]));
    return false;
  }

  Quantization quantization_of(int32_t tensor) {
    const int32_t r = root(tensor);
    if (const auto found = fixed_.find(r); found != fixed_.end()) return found->second;
    return scale_of(group_range_[r]);
  }

  int32_t add_tensor(Tensor tensor, int32_t origin) {
    made_.model.tensors.push_back(std::move(tensor));
    made_.origin.push_back(origin);
    return static_cast<int32_t>(made_.model.tensors.size()) - 1;
  }
  void add(Op op, std::vector<int32_t> inputs, int32_t output, const Options& options = {}) {
    made_.model.operators.push_back({op, std::move(inputs), {output}, options});
  }

  // A tensor like `i`, without its data.
  int32_t add_like(int32_t i, Type type, const Quantization& q, const char* ending) {
    Tensor t;
    t.name = from(i).name + ending;
    t.shape = from(i).shape;
    t.type = type;
    t.quantization = q;
    t.layer = from(i).layer;
    return add_tensor(std::move(t), i);
  }

  // Tensor i as float32, or as it is if it is no float.
  int32_t as_float(int32_t i) {
    if (i < 0) return -1;
    if (const auto found = floats_.find(i); found != floats_.end()) return found->second;
    if (const auto found = integers_.find(i); found != integers_.end()) {
      const int32_t made = add_like(i, Type::kFloat32, {}, "_float");
      add(Op::kDequantize, {found->second}, made);
      return floats_[i] = made;
    }
    return floats_[i] = add_tensor(from(i), -1);  // a constant
  }

  int32_t as_integer(int32_t i) {
    if (const auto found = integers_.find(i); found != integers_.end()) return found->second;
    if (from(i).constant()) return integers_[i] = add_constant(i, quantization_of(i), from(i).as<float>());
    const int32_t source = floats_.at(i);
    const int32_t made = add_like(i, Type::kInt8, quantization_of(i), "_int8");
    add(Op::kQuantize, {source}, made);
    return integers_[i] = made;
  }

  int32_t add_constant(int32_t i, const Quantization& q, std::span<const float> values) {
    Tensor t;
    t.name = from(i).name;
    t.shape = from(i).shape;
    t.type = Type::kInt8;
    t.layer = from(i).layer;
    t.quantization = q;
    t.data.resize(values.size());
    for (size_t e = 0; e < values.size(); ++e) t.as<int8_t>()[e] = quantized(values[e], q.scale(), q.zero());
    return add_tensor(std::move(t), -1);
  }

  void add_input(int32_t i) {
    if (!is_float(i) || options_.inputs == Type::kFloat32) {
      Tensor t = from(i);
      floats_[i] = add_tensor(std::move(t), i);
      made_.model.inputs.push_back(floats_[i]);
      return;
    }
    const Quantization q = quantization_of(i);
    if (options_.inputs == Type::kInt8) {
      made_.model.inputs.push_back(integers_[i] = add_like(i, Type::kInt8, q, ""));
      return;
    }
    Quantization shifted = q;
    shifted.zeros[0] += 128;
    made_.model.inputs.push_back(add_like(i, Type::kUInt8, shifted, ""));
    made_.origin.back() = -1;
    integers_[i] = add_like(i, Type::kInt8, q, "_int8");
    add(Op::kQuantize, {made_.model.inputs.back()}, integers_[i]);
  }

  void add_output(int32_t i) {
    if (!is_float(i) || options_.outputs == Type::kFloat32) {
      made_.model.outputs.push_back(as_float(i));
      return;
    }
    const int32_t made = as_integer(i);
    if (options_.outputs == Type::kInt8) {
      made_.model.outputs.push_back(made);
      return;
    }
    Quantization shifted = made_.model.tensor(made).quantization;
    shifted.zeros[0] += 128;
    const int32_t output = add_like(i, Type::kUInt8, shifted, "_uint8");
    made_.origin.back() = -1;
    add(Op::kQuantize, {made}, output);
    made_.model.outputs.push_back(output);
  }

  void add_float(const Operator& node) {
    std::vector<int32_t> inputs;
    for (const int32_t i : node.inputs) inputs.push_back(as_float(i));
    const int32_t output = add_like(node.outputs[0], from(node.outputs[0]).type, {}, "");
    floats_[node.outputs[0]] = output;
    add(node.op, std::move(inputs), output, node.options);
  }

  void add_integer(const Operator& node) {
    const int32_t output_of = node.outputs[0];
    std::vector<int32_t> inputs;
    if (channel_axis(node.op) >= 0) {
      inputs = weighted_inputs(node);
    } else if (node.op == Op::kConcat) {
      for (const int32_t part : node.inputs) inputs.push_back(part_of(part, quantization_of(output_of)));
    } else {
      const bool hidden = node.op == Op::kAdd && hides(from(node.inputs[1]));
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const int32_t input = node.inputs[i];
        if (hidden && i == 1)
          inputs.push_back(hidden_constant(input, quantization_of(output_of)));
        else
          inputs.push_back(is_float(input) ? as_integer(input) : as_float(input));
      }
    }
    const int32_t output = add_like(output_of, Type::kInt8, quantization_of(output_of), "");
    integers_[output_of] = output;
    add(node.op, std::move(inputs), output, node.options);
  }

  // A part of a concatenation, with the scale of the whole.
  int32_t part_of(int32_t part, const Quantization& whole) {
    if (from(part).constant()) return add_constant(part, whole, from(part).as<float>());
    const int32_t made = as_integer(part);
    const Quantization& own = made_.model.tensor(made).quantization;
    if (own.scales == whole.scales && own.zeros == whole.zeros) return made;
    const int32_t scaled = add_like(part, Type::kInt8, whole, "_scaled");
    add(Op::kQuantize, {made}, scaled);
    return scaled;
  }

  // What hides a score takes it to the lowest number there is.
  int32_t hidden_constant(int32_t i, const Quantization& sum) {
    const float depth = sum.scale() * 255;
    std::vector<float> values(from(i).as<float>().begin(), from(i).as<float>().end());
    for (float& v : values) v = v < kHiddenBelow ? -depth : v;
    return add_constant(i, scale_of(range_of(values)), values);
  }

  std::vector<int32_t> weighted_inputs(const Operator& node) {
    const int32_t x = as_integer(node.inputs[0]), axis = channel_axis(node.op);
    const auto [found, added] = weights_.try_emplace(node.inputs[1], -1);
    if (added) found->second = add_tensor(int8_weights(from(node.inputs[1]), axis), -1);
    const int32_t w = found->second;
    const Tensor& bias = from(node.inputs[2]);
    const float scale = made_.model.tensor(x).quantization.scale();
    const auto key = std::pair(node.inputs[2], scale);
    if (const auto known = biases_.find(key); known != biases_.end()) return {x, w, known->second};
    Tensor made;
    made.name = bias.name;
    made.shape = bias.shape;
    made.type = Type::kInt32;
    made.layer = bias.layer;
    made.data.resize(bias.data.size());
    const std::vector<double> shifts = options_.corrects_bias && bias_readers_[node.inputs[2]] == 1
                                           ? bias_shifts(node, made_.model.tensor(w))
                                           : std::vector<double>();
    const auto& scales = made_.model.tensor(w).quantization.scales;
    for (size_t c = 0; c < bias.as<float>().size(); ++c) {
      const double step = double{scale} * scales[c];
      const double value = (bias.as<float>()[c] + (shifts.empty() ? 0 : shifts[c])) / step;
      made.as<int32_t>()[c] = saturated(static_cast<int64_t>(std::clamp(std::round(value), -4e9, 4e9)));
      made.quantization.scales.push_back(static_cast<float>(step));
      made.quantization.zeros.push_back(0);
    }
    return {x, w, biases_[key] = add_tensor(std::move(made), -1)};
  }

  // What rounding the weights changes of the mean output of each channel, to be taken back: sum of (w - w') * mean(x).
  std::vector<double> bias_shifts(const Operator& node, const Tensor& rounded) const {
    const Tensor& w = from(node.inputs[1]);
    const std::vector<double> means = ranges_.means(node.inputs[0]);
    const auto& scales = rounded.quantization.scales;
    const size_t channels = scales.size();
    std::vector<double> shifts(channels);
    const auto exact = w.as<float>();
    const auto integer = rounded.as<int8_t>();
    const bool depthwise = node.op == Op::kDepthwiseConv;
    const size_t each = exact.size() / channels;
    const auto multiplier = static_cast<size_t>(node.options.multiplier);
    const auto inner = static_cast<size_t>(w.shape.back());
    for (size_t i = 0; i < exact.size(); ++i) {
      const size_t channel = depthwise ? i % channels : i / each;
      // Grouped convolutions read a part of the channels.
      const size_t groups = depthwise ? 1 : std::max<size_t>(1, means.size() / inner);
      const size_t input =
          depthwise ? channel / multiplier : channel / std::max<size_t>(1, channels / groups) * inner + i % inner;
      if (input >= means.size()) return {};
      shifts[channel] += (exact[i] - double{scales[channel]} * integer[i]) * means[input];
    }
    return shifts;
  }

  const Model& from_;
  const Calibrator& ranges_;
  const Int8Options& options_;
  std::vector<bool> integer_;
  std::vector<int32_t> group_;
  std::map<int32_t, Quantization> fixed_;
  std::map<int32_t, Range> group_range_;
  std::map<int32_t, int32_t> floats_, integers_, weights_;  // tensor of the float32 model -> tensor of the new one
  std::map<std::pair<int32_t, float>, int32_t> biases_;
  std::map<int32_t, int> bias_readers_;
  Int8Model made_;
};

}  // namespace

Int8Model quantize_int8(const Model& model, const Calibrator& ranges, const Int8Options& options) {
  return Quantizer(model, ranges, options).run();
}

}  // namespace plimsoll::engine::lite
