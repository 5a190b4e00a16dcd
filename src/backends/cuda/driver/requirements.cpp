#include "backends/cuda/driver/requirements.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include "backends/cuda/driver/check.h"
#include "backends/cuda/driver/libraries.h"

namespace plimsoll::engine::cuda {
namespace {

// The oldest driver for this major version (CUDA's release notes, "minimum required driver version").
constexpr const char* kOldestDriver = CUDART_VERSION >= 13000 ? "580" : "525";

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

template <typename T>
void note_missing(const Result<T>& loaded, std::vector<Error>& missing) {
  if (!loaded) missing.push_back(loaded.error());
}

std::vector<Error> missing_needed() {
  std::vector<Error> missing;
  note_missing(load_cudnn(), missing);
  note_missing(load_cublas_lt(), missing);
  note_missing(load_nvrtc(), missing);
  return missing;
}

}  // namespace

Status check_driver() {
  int version = 0;
  PLIMSOLL_CUDA(cudaDriverGetVersion(&version));
  if (version == 0)
    return fail(Error{ErrorCode::kLibraryMissing,
                      "there is no GPU this program can use",
                      {"no NVIDIA driver was found: libcuda.so.1 is missing, or is only a stub"},
                      {fmt::format("install NVIDIA's driver, version {} or newer", kOldestDriver),
                       "in a container: start it with --gpus all", "--device cpu"}});
  // A driver runs programs of every minor version of its major version.
  if (version / 1000 < CUDART_VERSION / 1000)
    return fail(Error{ErrorCode::kLibraryMissing,
                      "the GPU's driver is too old for this program",
                      {fmt::format("it supports CUDA up to {}, this program needs {}", version_text(version),
                                   version_text(CUDART_VERSION / 1000 * 1000))},
                      {fmt::format("a driver of version {} or newer", kOldestDriver), "--device cpu"}});
  return {};
}

Status check_libraries() {
  const std::vector<Error> missing = missing_needed();
  if (missing.empty()) return {};
  Error all{ErrorCode::kLibraryMissing, "", {}, {}};
  for (const Error& one : missing) {
    all.what += (all.what.empty() ? "" : "; ") + one.what;
    all.facts.insert(all.facts.end(), one.facts.begin(), one.facts.end());
    all.remedies.insert(all.remedies.end(), one.remedies.begin(), one.remedies.end());
  }
  return fail(all.remedy("--device cpu"));
}

std::vector<Error> missing_libraries() {
  std::vector<Error> missing = missing_needed();
  note_missing(load_nvml(), missing);
  return missing;
}

}  // namespace plimsoll::engine::cuda
