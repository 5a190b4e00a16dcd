// Measures the speed of the link between a card and pinned host memory.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "backends/cuda/cuda.h"
#include "backends/cuda/driver/check.h"
#include "backends/cuda/driver/engine_choices.h"
#include "backends/cuda/driver/link.h"

namespace plimsoll::engine {
namespace {

constexpr size_t kCopied = size_t{64} << 20;
constexpr int kRounds = 4;

// The resources of a measurement, freed in the destructor.
struct Bench {
  void *host = nullptr, *device = nullptr;
  cudaEvent_t begin = nullptr, end = nullptr;

  ~Bench() {
    cudaFreeHost(host);
    cudaFree(device);
    for (const cudaEvent_t event : {begin, end})
      if (event != nullptr) cudaEventDestroy(event);
  }
  Status open() {
    PLIMSOLL_CUDA(cudaHostAlloc(&host, kCopied, cudaHostAllocDefault));
    PLIMSOLL_CUDA(cudaMalloc(&device, kCopied));
    PLIMSOLL_CUDA(cudaEventCreate(&begin));
    PLIMSOLL_CUDA(cudaEventCreate(&end));
    return {};
  }
  // Bytes per second of the fastest of several copies.
  Result<double> speed(void* to, const void* from) const {
    double best = 0;
    for (int i = 0; i < kRounds; ++i) {
      PLIMSOLL_CUDA(cudaEventRecord(begin));
      PLIMSOLL_CUDA(cudaMemcpyAsync(to, from, kCopied, cudaMemcpyDefault));
      PLIMSOLL_CUDA(cudaEventRecord(end));
      PLIMSOLL_CUDA(cudaEventSynchronize(end));
      float milliseconds = 0;
      PLIMSOLL_CUDA(cudaEventElapsedTime(&milliseconds, begin, end));
      best = std::max(best, static_cast<double>(kCopied) / (static_cast<double>(milliseconds) * 1e-3));
    }
    return best;
  }
};

}  // namespace

Result<double> measure_gpu_link(int ordinal) {
  PLIMSOLL_CUDA(cudaSetDevice(ordinal));
  Bench bench;
  PLIMSOLL_TRY(bench.open());
  PLIMSOLL_ASSIGN(const double out, bench.speed(bench.host, bench.device));
  PLIMSOLL_ASSIGN(const double in, bench.speed(bench.device, bench.host));
  return std::min(out, in);
}

namespace cuda {

// Measured once and remembered in whole GB/s, so that later runs get the same plan.
Result<double> remembered_link(const Card& card, int ordinal) {
  const std::string key = "link " + card.name;
  if (const auto choice = remembered_choice(key))
    if (const double known = std::strtod(choice->c_str(), nullptr); known > 0) return known * 1e9;
  PLIMSOLL_ASSIGN(const double measured, measure_gpu_link(ordinal));
  const auto whole = std::max<int64_t>(1, static_cast<int64_t>(measured * 1e-9));
  remember_choice(key, std::to_string(whole));
  return static_cast<double>(whole) * 1e9;
}

}  // namespace cuda
}  // namespace plimsoll::engine
