// Helpers for tests that need a GPU, or another user of its memory.
#pragma once

#include <cuda_runtime.h>

#include "backends/cuda/cuda.h"
#include "tests/support/run.h"

namespace plimsoll::engine::testing {

// Skips the test if there is no GPU.
class OnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!visible_cards()) GTEST_SKIP() << "no GPU here";
  }
};

// Holds all free memory of the first GPU except `left` bytes, like another process that started meanwhile.
class Neighbour {
 public:
  explicit Neighbour(Bytes left) {
    size_t free = 0, total = 0;
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
    for (Bytes bytes = static_cast<Bytes>(free) - left; bytes > 0 && block_ == nullptr; bytes -= 2 * kMiB)
      (void)cudaMalloc(&block_, static_cast<size_t>(bytes));
    (void)cudaGetLastError();  // clears the error of failed tries
    EXPECT_NE(block_, nullptr) << format_bytes(static_cast<Bytes>(free)) << " are free";
  }
  ~Neighbour() { cudaFree(block_); }
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;

 private:
  void* block_ = nullptr;
};

}  // namespace plimsoll::engine::testing
