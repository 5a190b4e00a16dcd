// Which layers need float32 under mixed_float16: the text and the JSON of what execute/half_range.h found.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "execute/half_range.h"

namespace plimsoll::engine {

// What float16 does to the values of one layer.
struct HalfLoss {
  std::string layer;
  HalfPart part = HalfPart::kOutputs;
  float largest = 0;
  int64_t values = 0;     // that are finite and not zero
  int64_t too_large = 0;  // become infinite
  int64_t vanished = 0;   // become zero
  bool needs_float32 = false;
};

struct HalfReport {
  std::string model;
  int64_t samples = 0, steps = 0;
  int scale = 0;                // gradients are multiplied by 2^scale, the loss scale
  int64_t not_finite = 0;       // values that are not finite even in float32
  std::vector<HalfLoss> parts;  // in the order of the model's layers
  std::vector<std::string> float32_layers;
  std::string command;  // what to type next

  bool any() const { return !float32_layers.empty(); }
};

// The loss scale is that with which a training begins (Keras's 2^15), or less if a gradient of a layer that stays in
// float16 would overflow.
HalfReport half_report(const Model& model, const std::map<LayerPart, Magnitudes>& found);

std::string half_text(const HalfReport& report);
nlohmann::ordered_json half_json(const HalfReport& report);

}  // namespace plimsoll::engine
