// How each class of layers passes channels on. A class without a rule locks what it reads and writes.
#include <fmt/format.h>

#include <algorithm>

#include "model/config.h"
#include "shrink/channel_finder.h"

namespace plimsoll::engine {
namespace {

struct Site {
  ChannelFinder& f;
  size_t index;
  const LayerCall& call;
  const LayerObject& object;
  Json config;

  const Classes& in(size_t i = 0) const { return f.channels(call.inputs[i]); }
  const Shape& in_shape(size_t i = 0) const { return f.shape(call.inputs[i]); }
  const Shape& out_shape(size_t i = 0) const { return f.shape(call.outputs[i]); }
  std::string shown() const { return fmt::format("{} ({})", object.path, object.class_name); }
  int64_t integer(const char* key, int64_t otherwise) const {
    const Json* value = member(config, key);
    return value != nullptr ? as_integer(*value).value_or(otherwise) : otherwise;
  }
  bool flag(const char* key, bool otherwise) const {
    const Json* value = member(config, key);
    return value != nullptr && value->is_boolean() ? value->get<bool>() : otherwise;
  }
  bool last_axis(int64_t axis) const { return axis == -1 || axis == static_cast<int64_t>(in_shape().rank()); }
};

// Each channel `times` times in a row: a a b b.
Classes each(const Classes& channels, size_t times) {
  Classes made;
  for (const int32_t channel : channels) made.insert(made.end(), times, channel);
  return made;
}

// The whole list `times` times: a b a b.
Classes repeated(const Classes& channels, size_t times) {
  Classes made;
  for (size_t i = 0; i < times; ++i) made.insert(made.end(), channels.begin(), channels.end());
  return made;
}

// Ties the channels with the same number inside each of `groups` equal parts, so that each part loses as many.
void tie_parts(ChannelFinder& f, const Classes& channels, size_t groups) {
  const size_t part = channels.size() / groups;
  for (size_t i = 1; i < groups; ++i)
    f.tie(Classes(channels.begin(), channels.begin() + static_cast<std::ptrdiff_t>(part)),
          Classes(channels.begin() + static_cast<std::ptrdiff_t>(i * part),
                  channels.begin() + static_cast<std::ptrdiff_t>((i + 1) * part)));
}

size_t last_size(const Shape& shape) {
  return shape.rank() == 0 ? 0 : static_cast<size_t>(shape.back());
}

void give_locked(const Site& s, const std::string& why) {
  for (const size_t tensor : s.call.inputs) s.f.lock(s.f.channels(tensor), why);
  for (const size_t tensor : s.call.outputs) {
    s.f.set(tensor, s.f.fresh(last_size(s.f.shape(tensor))));
    s.f.lock(s.f.channels(tensor), why);
  }
}

void refuse(const Site& s, const char* why) {
  give_locked(s, fmt::format("{} {}", s.shown(), why));
}

bool channels_first(const Site& s) {
  return text_member(s.config, "data_format") == "channels_first";
}

// An activation that computes each channel from all of them.
bool mixes_channels(const Json& config, const char* key) {
  const Json* value = member(config, key);
  if (value == nullptr || value->is_null()) return false;
  const std::string name = lower_case(keras_object(*value).name);
  return name.find("softmax") != std::string::npos || name == "sparsemax" || name == "glu";
}

// ---- Layers that pass channels on

void pass(const Site& s) {
  if (s.call.inputs.size() != 1 || last_size(s.in_shape()) != last_size(s.out_shape()) || channels_first(s))
    return refuse(s, "moves or mixes channels in a way that is not followed");
  for (const size_t tensor : s.call.outputs) s.f.set(tensor, s.in());
}

void activation(const Site& s) {
  if (s.object.class_name == "Softmax" || mixes_channels(s.config, "activation"))
    return refuse(s, "computes each channel from all of them");
  pass(s);
}

void prelu(const Site& s) {
  pass(s);
  const auto rank = s.in_shape().rank();
  const Json* shared = member(s.config, "shared_axes");
  const bool shares =
      shared != nullptr && shared->is_array() && std::any_of(shared->begin(), shared->end(), [&](const Json& axis) {
        return as_integer(axis) == static_cast<int64_t>(rank) || as_integer(axis) == -1;
      });
  if (!shares) s.f.use(s.call.layer, "alpha", rank - 1, s.in());
}

void layer_scale(const Site& s) {
  pass(s);
  s.f.use(s.call.layer, "gamma", 0, s.in());
  s.f.follow(s.call.layer, "projection_dim", s.in());
}

void flatten(const Site& s) {
  if (channels_first(s)) return refuse(s, "has channels_first");
  const size_t size = last_size(s.in_shape());
  if (size == 0) return refuse(s, "reads no channels");
  s.f.set(s.call.outputs[0], repeated(s.in(), last_size(s.out_shape()) / size));
}

// The sizes of the result that follow the channels must be written in the configuration.
void follow_target(const Site& s, const Classes& channels) {
  const Json* target = member(s.config, "target_shape");
  if (target != nullptr && target->is_array() && !target->empty() && as_integer(target->back()).value_or(-1) != -1)
    s.f.follow(s.call.layer, "target_shape", channels);
}

void reshape(const Site& s) {
  const size_t before = last_size(s.in_shape()), after = last_size(s.out_shape());
  if (before == 0 || after == 0) return refuse(s, "reads no channels");
  // [H,W,C] -> [H*W,C] and [C] -> [1,1,C].
  if (before == after) {
    s.f.set(s.call.outputs[0], s.in());
    return follow_target(s, s.in());
  }
  // [H,W,C] -> [H*W*C].
  if (s.out_shape().rank() == 1 && after % before == 0) {
    s.f.set(s.call.outputs[0], repeated(s.in(), after / before));
    return follow_target(s, s.f.channels(s.call.outputs[0]));
  }
  // [H*W*C] -> [H,W,C]: a pixel has every C-th value.
  if (s.in_shape().rank() == 1 && before % after == 0) {
    const Classes in = s.in(), pixel(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(after));
    s.f.tie(repeated(pixel, before / after), in);
    s.f.set(s.call.outputs[0], pixel);
    return follow_target(s, pixel);
  }
  refuse(s, "makes other channels of them");
}

void permute(const Site& s) {
  const Json* dims = member(s.config, "dims");
  const bool keeps = dims != nullptr && dims->is_array() && !dims->empty() &&
                     as_integer(dims->back()) == static_cast<int64_t>(s.in_shape().rank());
  if (!keeps) return refuse(s, "moves the channels to another axis");
  s.f.set(s.call.outputs[0], s.in());
}

// ---- Layers of several tensors

void merge(const Site& s) {
  size_t widest = 0;
  for (size_t i = 1; i < s.call.inputs.size(); ++i)
    if (s.in(i).size() > s.in(widest).size()) widest = i;
  for (size_t i = 0; i < s.call.inputs.size(); ++i) {
    if (s.in(i).size() == s.in(widest).size())
      s.f.tie(s.in(widest), s.in(i));
    else if (s.in(i).size() != 1 && !s.in(i).empty())
      return refuse(s, "combines tensors of different widths");
  }
  if (last_size(s.out_shape()) != s.in(widest).size()) return refuse(s, "combines tensors of different widths");
  s.f.set(s.call.outputs[0], s.in(widest));
}

void concatenate(const Site& s) {
  if (!s.last_axis(s.integer("axis", -1))) return merge(s);
  Classes made;
  for (size_t i = 0; i < s.call.inputs.size(); ++i) made.insert(made.end(), s.in(i).begin(), s.in(i).end());
  s.f.set(s.call.outputs[0], std::move(made));
}

// ---- Normalisation

void batch_norm(const Site& s) {
  if (!s.last_axis(s.integer("axis", -1))) return refuse(s, "normalises another axis than the last");
  for (const char* weight : {"gamma", "beta", "moving_mean", "moving_variance"})
    s.f.use(s.call.layer, weight, 0, s.in());
  s.f.set(s.call.outputs[0], s.in());
}

constexpr const char* kStatistics = "computes statistics over the channels, so that each depends on all of them";

void layer_norm(const Site& s) {
  const Json* axis = member(s.config, "axis");
  const Json* one = axis != nullptr && axis->is_array() && axis->size() == 1 ? &(*axis)[0] : axis;
  const bool last = one == nullptr || (one->is_number_integer() && s.last_axis(as_integer(*one).value_or(-1)));
  if (!s.f.statistics() || !last) return refuse(s, kStatistics);
  for (const char* weight : {"gamma", "beta", "scale"}) s.f.use(s.call.layer, weight, 0, s.in());
  s.f.set(s.call.outputs[0], s.in());
}

void group_norm(const Site& s) {
  const int64_t groups = s.integer("groups", 32);
  // Each channel has its own statistics. Keras writes the number of channels for -1.
  const bool own = groups == -1 || groups == static_cast<int64_t>(s.in().size());
  const bool divides = groups > 0 && !s.in().empty() && s.in().size() % static_cast<size_t>(groups) == 0;
  if (!s.last_axis(s.integer("axis", -1)) || (!own && (!s.f.statistics() || !divides))) return refuse(s, kStatistics);
  if (!own)
    tie_parts(s.f, s.in(), static_cast<size_t>(groups));
  else if (groups != -1)
    s.f.follow(s.call.layer, "groups", s.in());
  for (const char* weight : {"gamma", "beta"}) s.f.use(s.call.layer, weight, 0, s.in());
  s.f.set(s.call.outputs[0], s.in());
}

// ---- Layers with kernels

void end_kernel(const Site& s, Classes made) {
  s.f.use(s.call.layer, "bias", 0, made);
  if (mixes_channels(s.config, "activation")) s.f.lock(made, s.shown() + " has an activation over all channels");
  s.f.set(s.call.outputs[0], std::move(made));
}

void dense(const Site& s) {
  s.f.use(s.call.layer, "kernel", 0, s.in(), true);
  s.f.reader(s.index, s.call.inputs[0], "kernel", 0, {1}, "bias");
  const Classes made = s.f.width(s.call.layer, "units", s.out_shape().back());
  s.f.use(s.call.layer, "kernel", 1, made);
  end_kernel(s, made);
}

void convolution(const Site& s) {
  if (channels_first(s)) return refuse(s, "has channels_first");
  const size_t rank = s.in_shape().rank() - 1;
  const auto groups = static_cast<size_t>(std::max<int64_t>(1, s.integer("groups", 1)));
  const Classes made = s.f.width(s.call.layer, "filters", s.out_shape().back());
  if (groups > 1) {
    tie_parts(s.f, s.in(), groups);
    tie_parts(s.f, made, groups);
  }
  const Classes read(s.in().begin(), s.in().begin() + static_cast<std::ptrdiff_t>(s.in().size() / groups));
  s.f.use(s.call.layer, "kernel", rank, read, true);
  s.f.use(s.call.layer, "kernel", rank + 1, made);
  if (groups == 1)
    s.f.reader(s.index, s.call.inputs[0], "kernel", rank, {rank + 1}, "bias");
  else
    s.f.reader(s.index, s.call.inputs[0], "kernel", rank, {}, "");
  end_kernel(s, made);
}

void transposed(const Site& s) {
  if (channels_first(s)) return refuse(s, "has channels_first");
  const size_t rank = s.in_shape().rank() - 1;
  s.f.use(s.call.layer, "kernel", rank + 1, s.in(), true);
  s.f.reader(s.index, s.call.inputs[0], "kernel", rank + 1, {}, "");
  const Classes made = s.f.width(s.call.layer, "filters", s.out_shape().back());
  s.f.use(s.call.layer, "kernel", rank, made);
  end_kernel(s, made);
}

void depthwise(const Site& s) {
  if (channels_first(s)) return refuse(s, "has channels_first");
  const size_t rank = s.in_shape().rank() - 1;
  s.f.use(s.call.layer, "kernel", rank, s.in());
  end_kernel(s, each(s.in(), last_size(s.out_shape()) / s.in().size()));
}

void separable(const Site& s) {
  if (channels_first(s)) return refuse(s, "has channels_first");
  const size_t rank = s.in_shape().rank() - 1;
  const auto times = static_cast<size_t>(std::max<int64_t>(1, s.integer("depth_multiplier", 1)));
  s.f.use(s.call.layer, "depthwise_kernel", rank, s.in());
  s.f.use(s.call.layer, "pointwise_kernel", rank, each(s.in(), times), true);
  s.f.reader(s.index, s.call.inputs[0], "pointwise_kernel", rank, {}, "");
  const Classes made = s.f.width(s.call.layer, "filters", s.out_shape().back());
  s.f.use(s.call.layer, "pointwise_kernel", rank + 1, made);
  end_kernel(s, made);
}

void embedding(const Site& s) {
  s.f.lock(s.in(), s.shown() + " reads them as numbers of rows");
  const Classes made = s.f.width(s.call.layer, "output_dim", s.out_shape().back());
  s.f.use(s.call.layer, "embeddings", 1, made);
  s.f.set(s.call.outputs[0], made);
}

void recurrent(const Site& s) {
  if (s.call.inputs.size() != 1) return refuse(s, "is given states");
  const size_t gates = s.object.class_name == "LSTM" ? 4 : s.object.class_name == "GRU" ? 3 : 1;
  const Classes made = s.f.width(s.call.layer, "units", s.out_shape().back());
  const size_t layer = s.call.layer;
  const std::string cell = gates == 4 ? "lstm_cell/" : gates == 3 ? "gru_cell/" : "simple_rnn_cell/";
  if (!s.f.has_weight(layer, cell + "kernel")) return refuse(s, "has weights that are not followed");
  s.f.use(layer, cell + "kernel", 0, s.in(), true);
  s.f.use(layer, cell + "kernel", 1, repeated(made, gates));
  s.f.use(layer, cell + "recurrent_kernel", 0, made, true);
  s.f.use(layer, cell + "recurrent_kernel", 1, repeated(made, gates));
  s.f.use(layer, cell + "bias", gates == 3 ? 1 : 0, repeated(made, gates));
  if (gates == 3)
    s.f.reader(s.index, s.call.inputs[0], cell + "kernel", 0, {}, "");
  else
    s.f.reader(s.index, s.call.inputs[0], cell + "kernel", 0, {1}, cell + "bias");
  if (mixes_channels(s.config, "activation")) s.f.lock(made, s.shown() + " has an activation over all channels");
  for (const size_t tensor : s.call.outputs) {
    if (last_size(s.f.shape(tensor)) != made.size()) return refuse(s, "has outputs of different widths");
    s.f.set(tensor, made);
  }
}

void attention(const Site& s) {
  const bool same = std::all_of(s.call.inputs.begin(), s.call.inputs.end(),
                                [&](size_t tensor) { return tensor == s.call.inputs[0]; });
  if (s.call.inputs.size() > 2 && !same) return refuse(s, "is called with tensors that are not followed");
  if (s.flag("use_gate", false)) return refuse(s, "has a gate, which is not followed");
  const size_t layer = s.call.layer, value = s.call.inputs.size() > 1 ? 1 : 0;
  const Classes heads = s.f.width(layer, "num_heads", s.integer("num_heads", 1));
  for (const auto& [name, input] : {std::pair<std::string, size_t>{"query", 0}, {"key", value}, {"value", value}}) {
    s.f.use(layer, name + "/kernel", 0, s.in(input), true);
    s.f.use(layer, name + "/kernel", 1, heads);
    s.f.use(layer, name + "/bias", 0, heads);
    s.f.reader(s.index, s.call.inputs[input], name + "/kernel", 0, {1, 2}, name + "/bias");
  }
  s.f.use(layer, "attention_output/kernel", 0, heads, true);
  if (s.out_shape().rank() == 0 || s.out_shape().rank() != s.in_shape().rank())
    return refuse(s, "has an output of several axes");
  const Classes made = s.f.width(layer, "output_shape", s.out_shape().back());
  s.f.use(layer, "attention_output/kernel", 2, made);
  s.f.use(layer, "attention_output/bias", 0, made);
  s.f.set(s.call.outputs[0], made);
  for (size_t i = 1; i < s.call.outputs.size(); ++i) {
    s.f.set(s.call.outputs[i], s.f.fresh(last_size(s.out_shape(i))));
    s.f.lock(s.f.channels(s.call.outputs[i]), s.shown() + " gives its scores");
    s.f.lock(heads, s.shown() + " gives the scores of its heads");
  }
}

using Rule = void (*)(const Site&);

struct ClassRule {
  Rule rule;
  std::initializer_list<std::string_view> classes;
};

const ClassRule kLayers[] = {
    {pass,
     {"Dropout",
      "SpatialDropout1D",
      "SpatialDropout2D",
      "SpatialDropout3D",
      "GaussianNoise",
      "GaussianDropout",
      "AlphaDropout",
      "ActivityRegularization",
      "Identity",
      "MaxPooling1D",
      "MaxPooling2D",
      "MaxPooling3D",
      "AveragePooling1D",
      "AveragePooling2D",
      "AveragePooling3D",
      "UpSampling1D",
      "UpSampling2D",
      "UpSampling3D",
      "ZeroPadding1D",
      "ZeroPadding2D",
      "ZeroPadding3D",
      "Cropping1D",
      "Cropping2D",
      "Cropping3D",
      "RepeatVector",
      "GlobalAveragePooling1D",
      "GlobalAveragePooling2D",
      "GlobalMaxPooling1D",
      "GlobalAveragePooling3D",
      "GlobalMaxPooling2D",
      "GlobalMaxPooling3D"}},
    {activation, {"Activation", "ReLU", "LeakyReLU", "ELU", "Softmax"}},
    {prelu, {"PReLU"}},
    {layer_scale, {"LayerScale"}},
    {flatten, {"Flatten"}},
    {reshape, {"Reshape"}},
    {permute, {"Permute"}},
    {merge, {"Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum"}},
    {concatenate, {"Concatenate"}},
    {batch_norm, {"BatchNormalization"}},
    {layer_norm, {"LayerNormalization", "RMSNormalization"}},
    {group_norm, {"GroupNormalization"}},
    {dense, {"Dense"}},
    {convolution, {"Conv1D", "Conv2D", "Conv3D"}},
    {transposed, {"Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose"}},
    {depthwise, {"DepthwiseConv1D", "DepthwiseConv2D"}},
    {separable, {"SeparableConv1D", "SeparableConv2D"}},
    {embedding, {"Embedding"}},
    {recurrent, {"LSTM", "GRU", "SimpleRNN"}},
    {attention, {"MultiHeadAttention"}},
};

// Functions of keras.ops and activations.
void operation_of_one(const Site& s) {
  if (s.call.inputs.size() != 1 || s.in_shape() != s.out_shape()) return refuse(s, "is not followed");
  pass(s);
}

const ClassRule kOperations[] = {
    {operation_of_one,
     {"Relu", "Relu6", "Sigmoid", "Silu", "Tanh", "Gelu", "Elu", "Selu", "Softplus", "LeakyRelu", "HardSigmoid",
      "HardSwish", "HardSilu", "Absolute", "Exp", "Square", "Negative", "Sqrt"}},
    {merge, {"Add", "Subtract", "Multiply", "Divide", "TrueDivide", "Maximum", "Minimum"}},
};

Rule find_rule(std::span<const ClassRule> table, std::string_view name) {
  for (const ClassRule& row : table)
    if (std::find(row.classes.begin(), row.classes.end(), name) != row.classes.end()) return row.rule;
  return nullptr;
}

}  // namespace

void follow_channels(ChannelFinder& finder, size_t index) {
  const LayerCall& call = finder.call(index);
  const LayerObject& object = finder.object(call);
  const Site site{finder, index, call, object, finder.config(call)};
  const Rule rule =
      object.operation ? find_rule(kOperations, object.class_name) : find_rule(kLayers, object.class_name);
  // Operations may have arguments beside their tensors: x + 2, or x + [1, 2, 3].
  const bool two = object.operation && rule == merge && call.inputs.size() < 2 && !finder.has_only_numbers(call);
  const bool empty = std::any_of(call.inputs.begin(), call.inputs.end(), [&](size_t tensor) {
    return finder.shape(tensor).rank() == 0 || finder.channels(tensor).empty();
  });
  if (rule == nullptr || two || empty) return refuse(site, "moves or mixes channels in a way that is not followed");
  rule(site);
}

}  // namespace plimsoll::engine
