#include "backends/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "backends/reference/reference.h"
#ifdef PLIMSOLL_HAS_CPU
#include "backends/cpu/cpu.h"
#endif
#ifdef PLIMSOLL_HAS_CUDA
#include "backends/cuda/cuda.h"
#endif

namespace plimsoll::engine {
namespace {

Status always() {
  return {};
}

// For a backend whose only device is the host, which every caller already knows.
BackendDescription nothing_to_add() {
  return {};
}

constexpr BackendEntry kReference{
    "reference",
    DType::kFloat64,
    true,
    always,
    [](const BackendOptions&) -> Result<std::unique_ptr<Backend>> { return make_reference_backend(); },
    nothing_to_add};

#ifdef PLIMSOLL_HAS_CPU
constexpr BackendEntry kCpu{"cpu",
                            DType::kFloat32,
                            true,
                            always,
                            [](const BackendOptions& options) -> Result<std::unique_ptr<Backend>> {
                              return options.way == "small-pieces" ? make_cpu_backend_of_small_pieces(options.threads)
                                                                   : make_cpu_backend(options.threads);
                            },
                            nothing_to_add};
#else
constexpr BackendEntry kCpu{
    "cpu",
    DType::kFloat32,
    false,
    []() -> Status {
      return fail(Error{ErrorCode::kLibraryMissing,
                        "this build has no CPU backend: it was built without oneDNN",
                        {},
                        {"install libdnnl-dev and build again", "--precision float64   the slow float64 reference"}});
    },
    nullptr,
    nothing_to_add};
#endif

#ifdef PLIMSOLL_HAS_CUDA
BackendDescription describe_gpus() {
  BackendDescription description;
  auto gpus = gpu_reports();
  if (!gpus) description.missing.push_back(gpus.error());
  for (GpuReport& gpu : gpus.value_or(std::vector<GpuReport>{}))
    description.devices.push_back({fmt::format("gpu:{}", gpu.ordinal), gpu.card.name,
                                   fmt::format("{}.{}", gpu.card.capability / 10, gpu.card.capability % 10),
                                   gpu.card.has_bfloat16(), gpu.card.memory_bytes, gpu.card.free_bytes,
                                   gpu.card.host_bytes_per_second, std::move(gpu.holders)});
  for (Error& missing : missing_gpu_libraries()) description.missing.push_back(std::move(missing));
  return description;
}

constexpr BackendEntry kGpu{"gpu",
                            DType::kFloat32,
                            true,
                            []() -> Status {
                              if (const auto cards = visible_cards(); !cards) return fail(cards.error());
                              return {};
                            },
                            [](const BackendOptions& options) {
                              GpuOptions gpu;
                              gpu.ordinal = options.ordinal;
                              gpu.tf32 = options.tf32;
                              gpu.memory_growth = options.memory_growth;
                              gpu.as_capability = options.as_capability;
                              gpu.way = options.way;
                              return make_cuda_backend(gpu);
                            },
                            describe_gpus};
#else
constexpr BackendEntry kGpu{
    "gpu",
    DType::kFloat32,
    false,
    []() -> Status {
      return fail(Error{ErrorCode::kLibraryMissing,
                        "this build has no GPU backend",
                        {"nvcc, the cuDNN headers or cudnn-frontend were missing when it was built"},
                        {"scripts/cuda_deps.sh, then make build", "--device cpu",
                         "--device rtx-4090-24g   with plimsoll plan: plan for a card this machine does not have"}});
    },
    nullptr,
    nothing_to_add};
#endif

constexpr BackendEntry kBackends[] = {kReference, kCpu, kGpu};

}  // namespace

std::span<const BackendEntry> backends() {
  return kBackends;
}

const BackendEntry& backend_named(std::string_view name) {
  const auto* found = std::find_if(std::begin(kBackends), std::end(kBackends),
                                   [&](const BackendEntry& entry) { return name == entry.name; });
  assert(found != std::end(kBackends));
  return *found;
}

Result<std::unique_ptr<Backend>> open_backend(std::string_view name, const BackendOptions& options) {
  const BackendEntry& entry = backend_named(name);
  if (!entry.built) {
    PLIMSOLL_TRY(entry.available());
  }
  return entry.open(options);
}

}  // namespace plimsoll::engine
