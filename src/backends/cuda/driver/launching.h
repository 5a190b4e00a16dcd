// Kernels made of several: own launches, checked where they are made, and lists of kernels run one after the other.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/cuda/driver/context.h"
#include "backends/cuda/driver/failures.h"

namespace plimsoll::cuda {

template <typename F>
std::unique_ptr<Kernel> launching(std::string what, F launch) {
  return make_kernel([what = std::move(what), launch = std::move(launch)] {
    launch();
    if (const cudaError_t code = cudaGetLastError(); code != cudaSuccess) note_failure(cuda_error(code, what));
  });
}

class Sequence final : public Kernel {
 public:
  explicit Sequence(std::vector<std::unique_ptr<Kernel>> kernels) : kernels_(std::move(kernels)) {}
  Sequence(std::unique_ptr<Kernel> first, std::unique_ptr<Kernel> second) {
    kernels_.push_back(std::move(first));
    kernels_.push_back(std::move(second));
  }
  void run() override {
    for (const auto& kernel : kernels_) kernel->run();
  }

 private:
  std::vector<std::unique_ptr<Kernel>> kernels_;
};

}  // namespace plimsoll::cuda
