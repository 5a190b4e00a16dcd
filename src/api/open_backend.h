// Selects the device and the precision of a run.
#pragma once

#include <memory>
#include <string>

#include "api/options.h"
#include "base/error.h"
#include "base/tensor.h"

namespace plimsoll::engine {

// Whether GPU memory is allocated as phases need it. `asked` is the user's choice, and `forced` is the value of
// TF_FORCE_GPU_ALLOW_GROWTH. As in TensorFlow, "true" and "false" override the user's choice, and other values have no
// effect.
struct MemoryGrowth {
  bool on = false;
  std::string note;  // tells the user about a setting that has no effect
};
MemoryGrowth choose_memory_growth(bool asked, const char* forced);
inline constexpr const char* kForceGrowth = "TF_FORCE_GPU_ALLOW_GROWTH";

// Converts a device name of TensorFlow, PyTorch or a user to Plimsoll's form: "/GPU:0", "/device:GPU:0" and "cuda:0"
// become "gpu:0", and "CPU:0" becomes "cpu". Any other name is returned in lower case.
std::string canonical_device(const std::string& device);
// Returns N for gpu:N and 0 for every other device. Fails with P201 if N is not a number.
Result<int> gpu_ordinal(const std::string& device);

// Opens the backend for options.device: "auto", "cpu", "gpu", "gpu:N" or the name of a GPU profile, in any form that
// canonical_device() accepts, or the path of a profile file. For float64 it opens the reference backend.
Result<std::unique_ptr<Backend>> open_backend(const RunOptions& options);
Result<Precision> parse_precision(const std::string& precision);  // "" means float32
// Returns "mixed_bfloat16" on a GPU with bfloat16, "mixed_float16" on any other GPU, and "float32" on a CPU.
std::string automatic_precision(const RunOptions& options);

}  // namespace plimsoll::engine
