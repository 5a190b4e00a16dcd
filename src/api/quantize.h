// plimsoll shrink quantize: a Keras model becomes a `.tflite` file of float32, float16 or integers.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "api/options.h"
#include "shrink/lite/quantize.h"

namespace plimsoll::engine {

enum class LiteFormat : uint8_t { kFloat32, kFloat16, kDynamic, kInt8 };
std::string_view name_of(LiteFormat format);

struct QuantizeOptions {
  RunOptions run;  // the model and the budget; the data it names calibrate
  LiteFormat format = LiteFormat::kFloat32;
  lite::Int8Options int8;
  std::vector<std::string> keep_float;  // patterns of layer names
  bool equalizes = false;
  int64_t calibration_samples = 1000;
  std::string output;
  const std::atomic<bool>* stop = nullptr;
  std::function<void(const std::string& doing, int64_t done, int64_t all)> progress;
};

struct LayerError {
  std::string layer;
  double mean_square = 0;            // of the difference to the float32 model, with the errors of the layers before
  double ratio = 0;                  // signal to noise in dB
  Bytes float_bytes = 0, bytes = 0;  // of its weights
};

struct QuantizeReport {
  std::string output, format;
  Bytes file_bytes = 0, float32_bytes = 0;
  int64_t operators = 0, calibrated = 0, compared = 0;
  std::vector<LayerError> layers;  // the worst first
  std::vector<std::string> kept, left_float;
  int equalized = 0;
  std::optional<double> float32_accuracy, accuracy;  // on the data that were compared
  std::optional<double> agreement;                   // share of samples for which both name the same class
  double output_mean_square = 0;
  Bytes peak_bytes = 0, budget_bytes = 0;
};

// Writes options.output. Fails with P201 if integers are wanted without data, or a pattern matches no layer; with P205
// if parts of the model do not convert; with P301 if the budget is too small.
Result<QuantizeReport> quantize(const QuantizeOptions& options);

}  // namespace plimsoll::engine
