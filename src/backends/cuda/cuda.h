// GPUs with CUDA. A card that is not in this machine can be planned for from its profile.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/cuda/card.h"
#include "device/kernel.h"

namespace plimsoll::engine {

// Offers kernels for a card, for planning only. It cannot run anything.
std::unique_ptr<Backend> make_planned_gpu(cuda::Card card);

struct GpuOptions {
  int ordinal = 0;             // index among the visible cards
  bool tf32 = true;            // allow float32 GEMMs and convolutions to round to tf32
  bool memory_growth = false;  // map memory as phases need it, not all at the start
  // If above 0, kernels are chosen as for a card of this compute capability (75 for 7.5), so that the kernels of older
  // cards can be tested on newer ones.
  int as_capability = 0;
  // For tests: forces the algorithm of convolutions instead of the fastest; binding fails if a shape does not support
  // it. For few input channels: "implicit-gemm", "paired", "im2col", "space-to-depth", "library". For weight gradients
  // with some dozens of channels: "per-tap", "library".
  std::string way;
};

// Defined only in builds with CUDA.
Result<std::unique_ptr<Backend>> make_cuda_backend(const GpuOptions& options);
// The cards that the driver reports; an error says why there is none. Creates no CUDA context, so it allocates no
// memory there.
Result<std::vector<cuda::Card>> visible_cards();

// Bytes per second between a card and pinned host memory, measured with copies of 64 MiB. The slower direction counts.
Result<double> measure_gpu_link(int ordinal);

// For `plimsoll doctor`: the free memory of each card, and the processes that hold the rest ("python3, process 4711:
// 12.3 GiB").
struct GpuReport {
  int ordinal = 0;
  cuda::Card card;
  std::vector<std::string> holders;
};
Result<std::vector<GpuReport>> gpu_reports();
std::vector<Error> missing_gpu_libraries();  // each with a remedy that installs it

}  // namespace plimsoll::engine
