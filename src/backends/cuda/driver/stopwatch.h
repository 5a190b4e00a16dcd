// Times work on a stream, to choose between engines at bind time. Must not be used while a phase is being captured.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <limits>

namespace plimsoll::engine::cuda {

class Stopwatch {
 public:
  explicit Stopwatch(cudaStream_t stream) : stream_(stream) {
    cudaEventCreate(&start_);
    cudaEventCreate(&stop_);
  }
  ~Stopwatch() {
    cudaEventDestroy(start_);
    cudaEventDestroy(stop_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  // The shortest of a few runs after a first run that loads the code; infinity if the work fails. `work` enqueues the
  // work and returns whether it could. Work that takes longer than twice `bound` is not run again.
  template <typename F>
  double seconds(const F& work, double bound = std::numeric_limits<double>::infinity()) {
    constexpr int kRuns = 4;
    const double failed = std::numeric_limits<double>::infinity();
    if (!work() || cudaStreamSynchronize(stream_) != cudaSuccess) {
      (void)cudaGetLastError();
      return failed;
    }
    double best = failed;
    for (int run = 0; run < kRuns; ++run) {
      cudaEventRecord(start_, stream_);
      if (!work()) return failed;
      cudaEventRecord(stop_, stream_);
      if (cudaEventSynchronize(stop_) != cudaSuccess) return failed;
      float milliseconds = 0;
      cudaEventElapsedTime(&milliseconds, start_, stop_);
      best = std::min(best, static_cast<double>(milliseconds) * 1e-3);
      if (best > 2 * bound) break;
    }
    return best;
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t start_ = nullptr, stop_ = nullptr;
};

}  // namespace plimsoll::engine::cuda
