// GPUs with CUDA. A card that is not in this machine can be planned for by its profile; one that is here also computes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/cuda/card.h"
#include "device/kernel.h"

namespace plimsoll::engine {

// Answers a planner's questions for a card; runs nothing.
std::unique_ptr<Backend> make_planned_gpu(cuda::Card card);

struct GpuOptions {
  int ordinal = 0;             // among the visible ones
  bool tf32 = true;            // whether float32 matrix work may be rounded to tf32
  bool memory_growth = false;  // whether memory is mapped as phases need it
  // Above 0: kernels are chosen as for a card of this compute capability (75), so that what older cards run is tested
  // on newer ones.
  int as_capability = 0;
  // For tests: how convolutions run, instead of what is fastest here, or fail where they cannot that way: over few
  // channels "implicit-gemm", "paired", "im2col", "space-to-depth", "library"; weight gradients over some dozens
  // "per-tap", "library".
  std::string way;
};

// Present in builds with CUDA.
Result<std::unique_ptr<Backend>> make_cuda_backend(const GpuOptions& options);
// The cards the driver shows; an error says why there is none. Makes no context, so takes no memory there.
Result<std::vector<cuda::Card>> visible_cards();

// Bytes a second between a card and pinned memory of the host, the slower way, as copies of 64 MiB reach.
Result<double> measure_gpu_link(int ordinal);

// For `doctor`: what is free on each card, and who holds the rest ("python3, process 4711: 12.3 GiB").
struct GpuReport {
  int ordinal = 0;
  cuda::Card card;
  std::vector<std::string> holders;
};
Result<std::vector<GpuReport>> gpu_reports();
std::vector<Error> missing_gpu_libraries();  // each with what installs it

}  // namespace plimsoll::engine
