#include "api/open_backend.h"

#include <fmt/format.h>
#include <omp.h>

#include "backends/cuda/cuda.h"
#include "backends/registry.h"
#include "base/suggest.h"
#include "model/config.h"

namespace plimsoll::engine {
namespace {

// Far above the number of cores of any machine. A limit is needed because OpenMP allocates memory for each thread
// before a plan exists.
constexpr int kMostThreads = 65536;

BackendOptions backend_options(const RunOptions& options) {
  BackendOptions backend;
  backend.threads = options.threads > 0 ? options.threads : omp_get_num_procs();
  backend.tf32 = options.tf32;
  backend.memory_growth = options.memory_growth;
  return backend;
}

Result<std::unique_ptr<Backend>> open_gpu(const RunOptions& options) {
  BackendOptions gpu = backend_options(options);
  PLIMSOLL_ASSIGN(gpu.ordinal, gpu_ordinal(options.device));
  auto backend = open_backend("gpu", gpu);
  if (!backend && !backend_named("gpu").built)
    backend.error().what = fmt::format("--device {}: {}", options.device, backend.error().what);
  return backend;
}

}  // namespace

std::string canonical_device(const std::string& device) {
  std::string name = lower_case(device);
  // TensorFlow's full name is "/job:localhost/replica:0/task:0/device:GPU:0".
  if (const size_t at = name.find("device:"); at != std::string::npos)
    name = name.substr(at + std::string_view("device:").size());
  else if (name.starts_with('/'))
    name = name.substr(1);
  if (name == "cuda" || name.starts_with("cuda:")) name = "gpu" + name.substr(4);
  return name == "cpu:0" ? "cpu" : name;
}

Result<int> gpu_ordinal(const std::string& device) {
  const std::string name = canonical_device(device);
  const size_t colon = name.find(':');
  if (!name.starts_with("gpu") || colon == std::string::npos) return 0;
  const std::string number = name.substr(colon + 1);
  if (number.empty() || number.find_first_not_of("0123456789") != std::string::npos || number.size() > 4)
    return fail(
        Error{ErrorCode::kUsage, fmt::format("--device {}: gpu:N takes a number", device), {}, {"--device gpu:0"}});
  return std::stoi(number);
}

namespace {

// Suggests a precision for names that other programs use, such as "bf16" and "fp16", and for misspelled names.
std::string precision_meant(const std::string& precision) {
  const std::string name = lower_case(precision);
  for (const auto& [other, ours] :
       {std::pair{"bf16", "mixed_bfloat16"}, std::pair{"bfloat16", "mixed_bfloat16"},
        std::pair{"fp16", "mixed_float16"}, std::pair{"f16", "mixed_float16"}, std::pair{"half", "mixed_float16"},
        std::pair{"float16", "mixed_float16"}, std::pair{"fp32", "float32"}, std::pair{"f32", "float32"},
        std::pair{"single", "float32"}, std::pair{"fp64", "float64"}, std::pair{"f64", "float64"},
        std::pair{"double", "float64"}})
    if (name == other) return ours;
  return suggestion(precision, {"float32", "mixed_bfloat16", "mixed_float16", "auto", "float64"});
}

}  // namespace

Result<Precision> parse_precision(const std::string& precision) {
  if (precision.empty()) return Precision();
  if (const auto known = precision_from_text(precision)) return *known;
  Error error{ErrorCode::kUsage,
              fmt::format("--precision {}: unknown precision", precision),
              {},
              {"--precision float32", "--precision mixed_bfloat16 or mixed_float16   activations in half precision",
               "--precision auto   the half precision that the GPU supports; float32 on a CPU",
               "--precision float64   the slow float64 reference"}};
  if (const std::string meant = precision_meant(precision); !meant.empty()) error.remedies = {"--precision " + meant};
  return fail(std::move(error));
}

MemoryGrowth choose_memory_growth(bool asked, const char* forced) {
  if (forced == nullptr) return {asked, ""};
  const std::string value = forced;
  if (value != "true" && value != "false")
    return {asked, fmt::format("{}={} is neither true nor false: it has no effect", kForceGrowth, value)};
  const bool on = value == "true";
  return {on, asked && !on ? fmt::format("{}=false turns --memory-growth off", kForceGrowth) : ""};
}

namespace {

// Opens the profile of a GPU that this machine does not have, by its name or from the user's file. It can only be
// planned for.
Result<cuda::Card> planned_card(const std::string& device) {
  if (cuda::is_profile_file(device)) return cuda::card_from_file(device);
  return cuda::card_from_profile(canonical_device(device));
}

// Returns whether the selected GPU or GPU profile supports bfloat16, or nothing for the CPU or a missing device.
std::optional<bool> card_has_bfloat16(const std::string& asked) {
  if (const auto card = planned_card(asked)) return card->has_bfloat16();
  const std::string device = canonical_device(asked);
  if (device != "auto" && !device.starts_with("gpu")) return std::nullopt;
  const auto ordinal = gpu_ordinal(device);
  const auto cards = backend_named("gpu").describe().devices;
  if (!ordinal || static_cast<size_t>(*ordinal) >= cards.size()) return std::nullopt;
  return cards[static_cast<size_t>(*ordinal)].has_bfloat16;
}

// Names the source of the precision for a message: the flag or the model's layers.
std::string precision_text(const RunOptions& options) {
  return (options.policy_of_layers ? "the model's layers are " : "--precision ") + options.precision;
}

Result<std::unique_ptr<Backend>> choose_backend(const RunOptions& options, const Precision& precision) {
  if (options.threads > kMostThreads)
    return fail(ErrorCode::kUsage, fmt::format("--threads {}: the maximum is {} threads, and this machine has {} cores",
                                               options.threads, kMostThreads, omp_get_num_procs()));
  const BackendOptions chosen = backend_options(options);
  omp_set_num_threads(chosen.threads);
  const std::string device = canonical_device(options.device);
  const bool float64 = precision.variables == DType::kFloat64, reference = device == "reference";
  if (float64 && !reference && device != "auto" && device != "cpu")
    return fail(Error{
        ErrorCode::kUsage,
        fmt::format("--device {}: float64 runs only on the reference backend, which uses the CPU", options.device),
        {},
        {"remove --device", "--precision float32"}});
  if (float64 || reference) return open_backend("reference", chosen);
  const bool from_file = cuda::is_profile_file(options.device);
  if (!from_file && (device == "gpu" || device.starts_with("gpu:"))) return open_gpu(options);
  if (device != "auto" && device != "cpu") {
    PLIMSOLL_ASSIGN(cuda::Card card, planned_card(options.device));
    card.tf32 = options.tf32;
    card.memory_growth = options.memory_growth;
    return make_planned_gpu(std::move(card));
  }
  if (device == "auto" && backend_named("gpu").available()) return open_gpu(options);
  return open_backend("cpu", chosen);
}

}  // namespace

std::string automatic_precision(const RunOptions& options) {
  const auto has_bfloat16 = card_has_bfloat16(options.device);
  if (!has_bfloat16) return to_text(Precision());
  return to_text(Precision(DType::kFloat32, *has_bfloat16 ? DType::kBFloat16 : DType::kFloat16));
}

Result<std::unique_ptr<Backend>> open_backend(const RunOptions& options) {
  PLIMSOLL_ASSIGN(const Precision precision, parse_precision(options.precision));
  PLIMSOLL_ASSIGN(auto backend, choose_backend(options, precision));
  const DeviceInfo& device = backend->device().info();
  if (precision.compute == DType::kBFloat16 && !device.has_bfloat16)
    return fail(Error{ErrorCode::kUsage,
                      fmt::format("{}: {} has no bfloat16", precision_text(options), device.name),
                      {"cards have it from compute capability 8.0 on"},
                      {"--precision mixed_float16   half precision with a loss scale", "--precision float32"}});
  return backend;
}

}  // namespace plimsoll::engine
