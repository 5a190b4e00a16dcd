// Which device computes, and in which precision.
#pragma once

#include <memory>
#include <string>

#include "api/options.h"
#include "base/error.h"
#include "base/tensor.h"

namespace plimsoll::engine {

// Whether memory of a GPU is taken as phases need it: as `asked`, unless TF_FORCE_GPU_ALLOW_GROWTH, whose value is
// `forced`, says otherwise. It says it as it does to TensorFlow: "true" and "false" win, anything else changes nothing.
struct MemoryGrowth {
  bool on = false;
  std::string note;  // for the user: what was asked for and is not done
};
MemoryGrowth choose_memory_growth(bool asked, const char* forced);
inline constexpr const char* kForceGrowth = "TF_FORCE_GPU_ALLOW_GROWTH";

// A device as TensorFlow, PyTorch or a user writes it, in our words: "/GPU:0", "/device:GPU:0" and "cuda:0" are
// "gpu:0", "CPU:0" is "cpu". What is none of these comes back in small letters.
std::string canonical_device(const std::string& device);
// N of gpu:N; 0 of every other device. P201 where N is not a number.
Result<int> gpu_ordinal(const std::string& device);

// "auto", "cpu", "gpu", "gpu:N" or the profile of a card, as canonical_device() reads them, or the file of a profile;
// the reference in float64.
Result<std::unique_ptr<Backend>> open_backend(const RunOptions& options);
Result<Precision> parse_precision(const std::string& precision);  // "" is float32
// "mixed_bfloat16" or "mixed_float16" on a GPU, whichever it has; "float32" on a CPU.
std::string automatic_precision(const RunOptions& options);

}  // namespace plimsoll::engine
