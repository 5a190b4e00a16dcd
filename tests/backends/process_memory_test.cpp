#include "device/process_memory.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace plimsoll::engine::testing {
namespace {

// Several threads allocate and free memory. The operating system's own peak lags behind such counts by some pages.
void hold_for_a_while(size_t bytes, Bytes& highest) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::memset(memory, 1, bytes);
  highest = std::max(highest, resident_bytes());
  munmap(memory, bytes);
}

TEST(ProcessMemory, PeakIsNoLessThanWhatWasEverSeen) {
  std::vector<Bytes> highest(4, 0);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < highest.size(); ++i)
    threads.emplace_back([&, i] {
      for (size_t pages = 1; pages < 200; ++pages) hold_for_a_while(pages * 4096, highest[i]);
    });
  for (std::thread& thread : threads) thread.join();
  const Bytes seen = *std::max_element(highest.begin(), highest.end());
  EXPECT_GT(seen, 0);
  EXPECT_GE(peak_resident_bytes(), seen);
}

// An environment variable alone must not switch a check off if no GPU is used.
TEST(ProcessMemory, AVariableAloneIsNoTool) {
  if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) != nullptr)
    GTEST_SKIP() << "a GPU driver is loaded in this process";
  const Bytes before = held_by_tools();
  ASSERT_EQ(setenv("NV_SANITIZER_INJECTION_PORT_BASE", "1", 1), 0);
  EXPECT_EQ(held_by_tools(), before);
  EXPECT_EQ(tools_note(), "");
  unsetenv("NV_SANITIZER_INJECTION_PORT_BASE");
}

TEST(ProcessMemory, PeakCountsWhatNobodyLookedAt) {
  const Bytes before = peak_resident_bytes();
  const size_t bytes = static_cast<size_t>(before) + (size_t{64} << 20);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::memset(memory, 1, bytes);
  munmap(memory, bytes);
  EXPECT_GE(peak_resident_bytes(), before + (Bytes{60} << 20));
}

}  // namespace
}  // namespace plimsoll::engine::testing
