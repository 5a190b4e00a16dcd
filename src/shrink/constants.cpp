#include "shrink/constants.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "model/config.h"
#include "model/tree.h"

namespace plimsoll::engine {
namespace {

using Values = std::vector<ChannelValue>;
using Function = std::function<double(double)>;

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

double softplus(double x) {
  return x > 30 ? x : std::log1p(std::exp(x));
}

// Returns null for a function that is not listed.
Function named_function(const std::string& name) {
  const std::map<std::string, Function> known = {
      {"", [](double x) { return x; }},
      {"linear", [](double x) { return x; }},
      {"relu", [](double x) { return std::max(x, 0.0); }},
      {"relu6", [](double x) { return std::clamp(x, 0.0, 6.0); }},
      {"sigmoid", sigmoid},
      {"tanh", [](double x) { return std::tanh(x); }},
      {"silu", [](double x) { return x * sigmoid(x); }},
      {"swish", [](double x) { return x * sigmoid(x); }},
      {"softplus", softplus},
      {"softsign", [](double x) { return x / (1 + std::abs(x)); }},
      {"mish", [](double x) { return x * std::tanh(softplus(x)); }},
      {"elu", [](double x) { return x > 0 ? x : std::expm1(x); }},
      {"selu", [](double x) { return 1.0507009873554805 * (x > 0 ? x : 1.6732632423543772 * std::expm1(x)); }},
      {"gelu", [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }},
      {"exponential", [](double x) { return std::exp(x); }},
      {"hard_sigmoid", [](double x) { return std::clamp(x / 6 + 0.5, 0.0, 1.0); }},
      {"hard_silu", [](double x) { return x * std::clamp(x / 6 + 0.5, 0.0, 1.0); }},
      {"hard_swish", [](double x) { return x * std::clamp(x / 6 + 0.5, 0.0, 1.0); }},
      {"negative", [](double x) { return -x; }},
      {"absolute", [](double x) { return std::abs(x); }},
      {"square", [](double x) { return x * x; }},
      {"exp", [](double x) { return std::exp(x); }},
  };
  const auto found = known.find(name);
  return found == known.end() ? nullptr : found->second;
}

double number(const Json& config, const char* key, double otherwise) {
  const Json* value = member(config, key);
  return value != nullptr ? as_number(*value).value_or(otherwise) : otherwise;
}

Function relu_layer(const Json& config) {
  const double slope = number(config, "negative_slope", 0), threshold = number(config, "threshold", 0),
               most = number(config, "max_value", HUGE_VAL);
  return [=](double x) { return x >= threshold ? std::min(x, most) : slope * (x - threshold); };
}

// The activation of a layer's configuration.
Function activation_of(const Json& config) {
  const Json* value = member(config, "activation");
  if (value == nullptr || value->is_null()) return named_function("linear");
  const KerasObject object = keras_object(*value);
  if (object.name == "ReLU") return relu_layer(object.config);
  return named_function(lower_case(object.name));
}

// The name of the "moving_mean" of the BatchNormalization that alone reads the call's output; "" if there is none.
std::string mean_after(const LayerTree& tree, const ChannelMap& map, const LayerCall& call) {
  const LayerCall* reader = nullptr;
  for (const LayerCall& other : map.program.calls)
    for (const size_t tensor : other.inputs)
      if (tensor == call.outputs[0]) {
        if (reader != nullptr) return "";
        reader = &other;
      }
  const auto& outputs = map.program.outputs;
  if (reader == nullptr || std::find(outputs.begin(), outputs.end(), call.outputs[0]) != outputs.end()) return "";
  const LayerObject& object = tree.layers[reader->layer];
  return object.class_name == "BatchNormalization" ? object.path + "/moving_mean" : "";
}

// A BatchNormalization takes a constant only from what its layer itself computes, not from its activation.
bool is_linear(const Json& model, const LayerObject& object) {
  Json copy = model;
  const Json* layer = layer_object(copy, object.names);
  const Json* config = layer != nullptr ? member(*layer, "config") : nullptr;
  const std::string name = config != nullptr && member(*config, "activation") != nullptr
                               ? keras_object(*member(*config, "activation")).name
                               : "linear";
  return name.empty() || name == "linear";
}

// The name of the weight that a constant of the reader's input is added to, or taken from; "" if there is none.
struct FoldTarget {
  std::string name;
  double sign = 1;
};
FoldTarget fold_target(const HeldModel& held, const ChannelMap& map, const Reader& reader) {
  const LayerTree& tree = held.model.architecture().parts().tree;
  const LayerCall& call = map.program.calls[reader.call];
  if (reader.outputs.empty()) return {};
  if (reader.bias >= 0) return {held.model.weights()[static_cast<size_t>(reader.bias)].name, 1};
  if (!is_linear(held.description.config, tree.layers[call.layer])) return {};
  return {mean_after(tree, map, call), -1};
}

// Operations whose other argument may be a number, which is not read here: the result is not taken for a constant.
bool is_arithmetic(const std::string& name) {
  for (const char* one : {"Add", "Subtract", "Multiply", "Divide", "TrueDivide", "Maximum", "Minimum"})
    if (name == one) return true;
  return false;
}

class Evaluation {
 public:
  Evaluation(const HeldModel& held, const ChannelMap& map)
      : held_(held), map_(map), tree_(held.model.architecture().parts().tree), config_(held.description.config) {}

  ChannelValues run() {
    made_.tensors.resize(map_.tensors.size());
    for (size_t i = 0; i < map_.tensors.size(); ++i) made_.tensors[i].resize(map_.tensors[i].size());
    // Calls read only tensors of calls that Keras runs before them.
    for (const LayerCall& call : map_.program.calls) {
      if (map_.tensors[call.outputs[0]].empty() || map_.tensors[call.inputs[0]].empty()) continue;
      evaluate(call);
    }
    find_free();
    return std::move(made_);
  }

 private:
  const Values& in(const LayerCall& call, size_t i = 0) const { return made_.tensors[call.inputs[i]]; }
  Values& out(const LayerCall& call) { return made_.tensors[call.outputs[0]]; }

  const std::vector<float>* weight(const LayerCall& call, const std::string& name) const {
    const auto found = held_.values.find(tree_.layers[call.layer].path + "/" + name);
    return found == held_.values.end() ? nullptr : &found->second;
  }

  void apply(Values& values, const Function& function) {
    for (ChannelValue& one : values) {
      one.value = function ? function(one.value) : 0;
      one.exact = one.exact && function && std::isfinite(one.value);
      if (!std::isfinite(one.value)) one.value = 0;
    }
  }

  void pass(const LayerCall& call, const Function& function) {
    if (in(call).size() != out(call).size()) return;
    out(call) = in(call);
    apply(out(call), function);
  }

  // Zeros enter at the border, so a channel that is constant elsewhere is not constant there.
  void pad(const LayerCall& call) {
    pass(call, named_function("linear"));
    for (ChannelValue& one : out(call)) one.exact = one.exact && one.value == 0;
  }

  // Channels of a kernel's output axis. A channel is constant if the whole kernel is 0 there.
  void kernel(const LayerCall& call, const Json& config, const std::string& name, size_t axis) {
    const auto* values = weight(call, name);
    const auto* bias = weight(call, "bias");
    if (values == nullptr) return;
    const Shape& shape = shape_of(call, name);
    int64_t inner = 1;
    for (size_t d = axis + 1; d < shape.rank(); ++d) inner *= shape[d];
    std::vector<bool> zero(out(call).size(), true);
    for (size_t i = 0; i < values->size(); ++i)
      if ((*values)[i] != 0) zero[(i / static_cast<size_t>(inner)) % zero.size()] = false;
    for (size_t i = 0; i < out(call).size(); ++i)
      out(call)[i] = {bias != nullptr ? (*bias)[i] : 0.0, zero[i], !zero[i]};
    apply(out(call), activation_of(config));
  }

  // Each channel is filtered alone: a constant stays one, except where zeros enter at the border.
  void depthwise(const LayerCall& call, const Json& config) {
    const auto* values = weight(call, "kernel");
    const auto* bias = weight(call, "bias");
    if (values == nullptr) return;
    const size_t channels = out(call).size(), times = channels / in(call).size();
    std::vector<double> sums(channels);
    for (size_t i = 0; i < values->size(); ++i) sums[i % channels] += (*values)[i];
    const bool padded = std::any_of(call.shape.windows.begin(), call.shape.windows.end(),
                                    [](const KernelWindow& one) { return one.before > 0 || one.after > 0; });
    for (size_t i = 0; i < channels; ++i) {
      const ChannelValue& from = in(call)[i / times];
      const bool exact = from.exact && (from.value == 0 || !padded);
      out(call)[i] = {sums[i] * from.value + (bias != nullptr ? (*bias)[i] : 0.0), exact, !exact};
    }
    apply(out(call), activation_of(config));
  }

  void batch_norm(const LayerCall& call, const Json& config) {
    const auto *gamma = weight(call, "gamma"), *beta = weight(call, "beta"), *mean = weight(call, "moving_mean"),
               *variance = weight(call, "moving_variance");
    if (mean == nullptr || variance == nullptr) return;
    const double epsilon = number(config, "epsilon", 1e-3);
    for (size_t i = 0; i < out(call).size(); ++i) {
      const ChannelValue& from = in(call)[i];
      const double scale = (gamma != nullptr ? (*gamma)[i] : 1.0) / std::sqrt((*variance)[i] + epsilon);
      const double shift = beta != nullptr ? (*beta)[i] : 0.0;
      const bool ends = gamma != nullptr && (*gamma)[i] == 0;  // whatever comes in
      out(call)[i] = {shift + (from.exact && !ends ? scale * (from.value - (*mean)[i]) : 0), from.exact || ends, false};
    }
  }

  void merge(const LayerCall& call, const std::string& name) {
    Values& made = out(call);
    for (size_t i = 0; i < made.size(); ++i) {
      bool exact = true, is_zero = false;
      double value = 0;
      for (size_t k = 0; k < call.inputs.size(); ++k) {
        const Values& from = in(call, k);
        if (from.empty()) {
          exact = false;
          continue;
        }
        const ChannelValue& one = from[from.size() == 1 ? 0 : i];
        exact = exact && one.exact;
        is_zero = is_zero || (one.exact && one.value == 0);
        if (k == 0)
          value = one.value;
        else if (name == "Multiply")
          value *= one.value;
        else if (name == "Subtract")
          value -= one.value;
        else if (name == "Maximum")
          value = std::max(value, one.value);
        else if (name == "Minimum")
          value = std::min(value, one.value);
        else
          value += one.value;
      }
      if (name == "Average") value /= static_cast<double>(call.inputs.size());
      made[i] = {value, exact || (name == "Multiply" && is_zero), false};
      if (name == "Multiply" && is_zero) made[i].value = 0;
    }
  }

  void concatenate(const LayerCall& call) {
    Values made;
    for (size_t k = 0; k < call.inputs.size(); ++k) made.insert(made.end(), in(call, k).begin(), in(call, k).end());
    if (made.size() == out(call).size()) out(call) = std::move(made);
  }

  void repeat(const LayerCall& call) {
    Values& made = out(call);
    for (size_t i = 0; i < made.size(); ++i) made[i] = in(call)[i % in(call).size()];
  }

  // [H*W*C] -> [H,W,C]: a channel is constant if all its pixels are, with one value.
  void split_pixels(const LayerCall& call) {
    Values& made = out(call);
    const Values& from = in(call);
    for (size_t i = 0; i < made.size(); ++i) made[i] = from[i];
    for (size_t i = made.size(); i < from.size(); ++i) {
      ChannelValue& one = made[i % made.size()];
      one.exact = one.exact && from[i].exact && from[i].value == one.value;
    }
  }

  void embedding(const LayerCall& call) {
    const auto* table = weight(call, "embeddings");
    if (table == nullptr || out(call).empty()) return;
    const size_t width = out(call).size(), rows = table->size() / width;
    for (size_t i = 0; i < width; ++i) {
      double sum = 0;
      bool same = true;
      for (size_t r = 0; r < rows; ++r) {
        sum += (*table)[r * width + i];
        same = same && (*table)[r * width + i] == (*table)[i];
      }
      out(call)[i] = {rows > 0 ? sum / static_cast<double>(rows) : 0, same, false};
    }
  }

  const Shape& shape_of(const LayerCall& call, const std::string& name) const {
    const std::string full = tree_.layers[call.layer].path + "/" + name;
    for (const size_t index : map_.weights_of[call.layer])
      if (held_.model.weights()[index].name == full) return held_.model.weights()[index].shape;
    static const Shape kNoShape;
    return kNoShape;
  }

  void evaluate(const LayerCall& call) {
    const LayerObject& object = tree_.layers[call.layer];
    const std::string& name = object.class_name;
    const Json* layer = layer_object(config_, object.names);
    const Json* found = layer != nullptr ? member(*layer, "config") : nullptr;
    const Json config = found != nullptr ? *found : Json::object();
    const size_t rank = map_.program.tensors[call.inputs[0]].rank() - 1;
    const auto is = [&](std::initializer_list<std::string_view> names) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    if (object.operation && (call.inputs.size() == 1 || is({"Divide", "TrueDivide"})) && is_arithmetic(name)) return;
    if (is({"Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum"})) return merge(call, name);
    if (object.operation) return pass(call, named_function(lower_case(name)));
    if (name == "Dense") return kernel(call, config, "kernel", 1);
    if (is({"Conv1D", "Conv2D", "Conv3D"})) return kernel(call, config, "kernel", rank + 1);
    if (is({"Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose"})) return kernel(call, config, "kernel", rank);
    if (is({"SeparableConv1D", "SeparableConv2D"})) return kernel(call, config, "pointwise_kernel", rank + 1);
    if (is({"DepthwiseConv1D", "DepthwiseConv2D"})) return depthwise(call, config);
    if (name == "BatchNormalization") return batch_norm(call, config);
    if (name == "Concatenate") return concatenate(call);
    if (name == "Embedding") return embedding(call);
    if (name == "Flatten") return repeat(call);
    if (name == "Reshape") {
      if (out(call).size() < in(call).size()) return split_pixels(call);
      return repeat(call);
    }
    if (is({"ZeroPadding1D", "ZeroPadding2D", "ZeroPadding3D"})) return pad(call);
    if (is({"GaussianNoise", "LSTM", "GRU", "SimpleRNN", "MultiHeadAttention", "LayerNormalization", "RMSNormalization",
            "GroupNormalization", "PReLU", "LayerScale"}))
      return;
    if (name == "ReLU") return pass(call, relu_layer(config));
    if (name == "LeakyReLU") {
      const double slope = number(config, "negative_slope", 0.3);
      return pass(call, [=](double x) { return x > 0 ? x : slope * x; });
    }
    if (name == "ELU") {
      const double alpha = number(config, "alpha", 1);
      return pass(call, [=](double x) { return x > 0 ? x : alpha * std::expm1(x); });
    }
    if (name == "Activation") return pass(call, activation_of(config));
    pass(call, named_function("linear"));  // layers that move, average or drop values; those without a rule are locked
  }

  // A class is free if each layer that computes with its channels can do without them.
  void find_free() {
    made_.free.assign(map_.classes(), false);
    std::vector<bool> read(map_.classes()), spoiled(map_.classes());
    for (const Reader& reader : map_.readers) {
      const LayerCall& call = map_.program.calls[reader.call];
      const bool padded = std::any_of(call.shape.windows.begin(), call.shape.windows.end(),
                                      [](const KernelWindow& one) { return one.before > 0 || one.after > 0; });
      const bool folds = !padded && !fold_target(held_, map_, reader).name.empty();
      const Classes& classes = map_.tensors[reader.tensor];
      for (size_t i = 0; i < classes.size(); ++i) {
        const ChannelValue& one = made_.tensors[reader.tensor][i];
        const auto at = static_cast<size_t>(classes[i]);
        read[at] = true;
        if (!one.exact || (one.value != 0 && !folds)) spoiled[at] = true;
      }
    }
    // Axes that read channels but are no readers: recurrent kernels, heads.
    std::set<std::pair<size_t, size_t>> known;
    for (const Reader& reader : map_.readers) known.emplace(reader.kernel, reader.axis);
    for (const WeightAxis& axis : map_.axes) {
      if (!axis.reads || known.count({axis.weight, axis.axis}) > 0) continue;
      for (const int32_t one : axis.classes) spoiled[static_cast<size_t>(one)] = true;
    }
    for (size_t i = 0; i < made_.free.size(); ++i) made_.free[i] = read[i] && !spoiled[i];
  }

  const HeldModel& held_;
  const ChannelMap& map_;
  const LayerTree& tree_;
  Json config_;
  ChannelValues made_;
};

}  // namespace

ChannelValues channel_values(const HeldModel& held, const ChannelMap& map) {
  return Evaluation(held, map).run();
}

std::vector<std::string> fold_constants(HeldModel& held, const ChannelMap& map, const ChannelValues& values,
                                        const std::vector<bool>& keep) {
  const LayerTree& tree = held.model.architecture().parts().tree;
  std::set<std::pair<size_t, size_t>> done;  // a layer that is called twice has one bias
  std::vector<std::string> left;
  for (const Reader& reader : map.readers) {
    if (!done.emplace(reader.kernel, reader.axis).second) continue;
    const LayerCall& call = map.program.calls[reader.call];
    const Classes& classes = map.tensors[reader.tensor];
    const Weight& weight = held.model.weights()[reader.kernel];
    const auto& kernel = held.values.at(weight.name);
    std::vector<double> removed(classes.size());
    bool any = false;
    for (size_t i = 0; i < classes.size(); ++i) {
      if (keep[static_cast<size_t>(classes[i])]) continue;
      removed[i] = values.tensors[reader.tensor][i].value;
      any = any || removed[i] != 0;
    }
    if (!any) continue;
    const FoldTarget target = fold_target(held, map, reader);
    if (target.name.empty()) {
      left.push_back(tree.layers[call.layer].path);
      continue;
    }
    // The sum over all axes of the kernel but those of the bias.
    std::vector<int64_t> strides(weight.shape.rank(), 1);
    for (size_t d = weight.shape.rank(); d-- > 1;) strides[d - 1] = strides[d] * weight.shape[d];
    int64_t width = 1;
    for (const size_t axis : reader.outputs) width *= weight.shape[axis];
    std::vector<double> sums(static_cast<size_t>(width));
    for (size_t i = 0; i < kernel.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      const double value = removed[static_cast<size_t>(at / strides[reader.axis] % weight.shape[reader.axis])];
      if (value == 0) continue;
      int64_t to = 0;
      for (const size_t axis : reader.outputs) to = to * weight.shape[axis] + at / strides[axis] % weight.shape[axis];
      sums[static_cast<size_t>(to)] += value * kernel[i];
    }
    std::vector<float>& bias = held.values.at(target.name);
    for (size_t i = 0; i < sums.size(); ++i) bias[i] = static_cast<float>(bias[i] + target.sign * sums[i]);
  }
  return left;
}

}  // namespace plimsoll::engine
