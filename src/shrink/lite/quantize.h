// Writes a float32 model with fewer bits.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "shrink/lite/calibrate.h"

namespace plimsoll::engine::lite {

struct Int8Options {
  RangeMethod method = RangeMethod::kPercentile;
  double percent = 99.99;
  bool corrects_bias = true;
  Type inputs = Type::kFloat32, outputs = Type::kFloat32;  // or kInt8, kUInt8
  // Returns whether a layer stays in float32. May be empty.
  std::function<bool(const std::string& layer)> keeps_float;
};

struct Int8Model {
  Model model;
  std::vector<int32_t> origin;  // per tensor: the tensor of the float32 model that it stands for, or -1
  // Operators that stay in float32, although they were not asked to: "LAYER: OPERATOR".
  std::vector<std::string> left_float;
};

// Integers everywhere, where TensorFlow Lite has integer operators.
Int8Model quantize_int8(const Model& model, const Calibrator& ranges, const Int8Options& options);

// Weights in float16; the runtime widens them when it loads the file.
Model quantize_float16(const Model& model);
// Weights of large layers in int8; everything else is float32 (TensorFlow Lite's dynamic range quantization).
Model quantize_weights(const Model& model, const std::function<bool(const std::string& layer)>& keeps_float);

// Scales the channels between pairs of layers so that their weights have the same range; the model computes the same.
// Returns how many pairs it changed.
int equalize(Model& model);

// What a layer's weights take in `model`.
Bytes weight_bytes(const Model& model, const std::string& layer);

// Weights as int8, symmetric, with a scale per index of `axis`.
Tensor int8_weights(const Tensor& weights, int32_t axis);
// The axis of a layer's output channels in its weights; -1 if the operator has no weights.
int32_t channel_axis(Op op);

}  // namespace plimsoll::engine::lite
