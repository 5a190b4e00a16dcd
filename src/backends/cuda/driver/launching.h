// Helpers to build kernels: `launching` wraps a launch function and checks it for errors right after the launch;
// `Sequence` runs several kernels one after the other.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/cuda/driver/context.h"

namespace plimsoll::engine::cuda {

template <typename F>
std::unique_ptr<Kernel> launching(Context& context, std::string what, F launch) {
  return make_kernel([&context, what = std::move(what), launch = std::move(launch)] {
    launch();
    note_enqueued(context, what);
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

}  // namespace plimsoll::engine::cuda
