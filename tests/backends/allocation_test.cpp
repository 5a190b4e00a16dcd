// Memory the CPU backend uses beyond what the plan provides: malloc during run(), and resident memory of many
// primitives.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "backends/cpu/cpu.h"
#include "lower/lower.h"
#include "tests/backends/bound.h"
#include "tests/support/allocations.h"

namespace plimsoll::engine::testing {
namespace {

using Ints = std::vector<int64_t>;

struct Problem {
  std::string op;
  std::vector<TensorType> inputs;
  Attrs attrs;
};

Attrs convolution(int64_t groups) {
  return {{"strides", Ints{1, 1}}, {"pads", Ints{1, 1, 1, 1}}, {"dilations", Ints{1, 1}}, {"groups", groups}};
}
Attrs with(Attrs attrs, const std::string& key, Attr value) {
  attrs.set(key, std::move(value));
  return attrs;
}

std::vector<Problem> problems() {
  const TensorType x = floats({8, 20, 20, 16}), w = floats({3, 3, 16, 24}), y = floats({8, 20, 20, 24}),
                   dw = floats({3, 3, 1, 16});
  return {{"conv2d", {x, w, floats({24})}, convolution(1)},
          {"conv2d_input_grad", {y, w}, with(convolution(1), "input_size", Ints{20, 20})},
          {"conv2d_weight_grad", {x, y}, with(with(convolution(1), "kernel", Ints{3, 3}), "bias", true)},
          {"conv2d", {x, dw}, convolution(16)},
          {"conv2d_input_grad", {x, dw}, with(convolution(16), "input_size", Ints{20, 20})},
          {"conv2d_weight_grad", {x, x}, with(convolution(16), "kernel", Ints{3, 3})},
          {"matmul", {floats({64, 5000}), floats({5000, 10}), floats({10})}, {}},
          {"max_pool2d", {x}, {{"pool", Ints{2, 2}}, {"strides", Ints{2, 2}}, {"pads", Ints{0, 0, 0, 0}}}},
          {"batch_norm_stats", {x}, {}},
          {"reduce_to", {x}, {{"shape", Ints{16}}}},
          {"reduce_to", {x}, {{"shape", Ints{8, 1, 1, 16}}}},
          {"gelu", {x}, {}},
          {"softmax", {x}, {}},
          {"squared_norm", {x}, {}},
          {"concat", {x, x}, {{"axis", int64_t{3}}}}};
}

TEST(CpuBackend, AllocatesLessThanAKibibyteInARun) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer replaces malloc";
#endif
  const auto backend = make_cpu_backend(2);
  for (const Problem& problem : problems()) {
    BoundNodeUnderTest node(*backend, single(problem.op, problem.inputs, problem.attrs), 0);
    node.kernel->run();  // this first run starts the threads
    const AllocationWatch watch;
    node.kernel->run();
    EXPECT_LE(watch.bytes(), 1024U) << problem.op << " by " << node.offer.kernel;
  }
}

Bytes resident() {
  std::ifstream file("/proc/self/statm");
  Bytes size = 0, pages = 0;
  file >> size >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

// A chain of convolutions of one shape that run on oneDNN.
LoweredGraph equal_convolutions(const Device& device, int count) {
  std::string text = "graph \"chain\"\n  %y0 = input f32[2,8,8,16] inputs\n";
  for (int i = 1; i <= count; ++i) text += fmt::format("  %w{} = input f32[5,5,16,16] weights persistent\n", i);
  for (int i = 1; i <= count; ++i)
    text += fmt::format(
        "  %y{0} = conv2d(%y{1}, %w{0}) {{dilations=[1,1], groups=1, pads=[2,2,2,2], strides=[1,1]}} : f32[2,8,8,16] "
        "activations\n",
        i, i - 1);
  return *lower(*parse_graph(text + fmt::format("  output %y{}\n", count)), device);
}

TEST(CpuBackend, APlanCountsEachPrimitiveOnce) {
  const auto backend = make_cpu_backend(2);
  const int one = equal_convolutions(backend->device(), 1).primitives();
  EXPECT_GT(one, 0);
  EXPECT_EQ(equal_convolutions(backend->device(), 100).primitives(), one);
}

TEST(CpuBackend, EqualNodesShareOnePrimitive) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer's own memory would be counted";
#endif
  constexpr int kNodes = 1000;
  const auto backend = make_cpu_backend(2);
  const LoweredGraph lowered = equal_convolutions(backend->device(), 1);
  const size_t n = lowered.graph.nodes.size() - 1;
  const Node& node = lowered.graph.nodes[n];
  ASSERT_EQ(node.op, "conv2d");
  const KernelOffer& offer = lowered.kernels[n];
  std::vector<float> from(1 << 16, 1), to(1 << 16), scratch(static_cast<size_t>(offer.workspace / 4 + 16));
  const std::vector<void*> in = {from.data(), from.data()}, out = {to.data()};
  void* const workspace = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) / 4;
  std::vector<std::unique_ptr<Kernel>> kernels;
  const auto bind = [&] {
    kernels.push_back(
        std::move(*backend->bind({lowered.graph, node, offer.kernel, in, out, workspace, offer.workspace})));
  };
  bind();
  const Bytes before = resident();
  while (kernels.size() < kNodes) bind();
  EXPECT_LE(resident() - before, kNodes * 8 * kKiB);
}

// Equal nodes on two threads, each with its own data. The results must be those of one thread.
TEST(CpuBackend, NodesThatShareAPrimitiveMayRunAtTheSameTime) {
  const auto backend = make_cpu_backend(1);
  const Attrs attrs = {
      {"strides", Ints{1, 1}}, {"pads", Ints{2, 2, 2, 2}}, {"dilations", Ints{1, 1}}, {"groups", int64_t{1}}};
  const Graph graph = single("conv2d", {floats({2, 8, 8, 16}), floats({5, 5, 16, 16})}, attrs);
  constexpr int64_t kOut = 2 * 8 * 8 * 16;
  std::vector<std::unique_ptr<BoundNodeUnderTest>> nodes;
  std::vector<std::vector<float>> expected;
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    nodes.push_back(std::make_unique<BoundNodeUnderTest>(*backend, graph, 0));
    fill_normal(nodes.back()->input(0), kOut, seed);
    fill_normal(nodes.back()->input(1), 5 * 5 * 16 * 16, 10 * seed);
    nodes.back()->kernel->run();
    expected.emplace_back(nodes.back()->output(0), nodes.back()->output(0) + kOut);
  }
  EXPECT_NE(expected[0], expected[1]);
  const auto run = [&](size_t i) {
    for (int repeat = 0; repeat < 200; ++repeat) {
      std::fill_n(nodes[i]->output(0), kOut, 0.0F);
      nodes[i]->kernel->run();
      ASSERT_EQ(std::vector<float>(nodes[i]->output(0), nodes[i]->output(0) + kOut), expected[i]) << i;
    }
  };
  std::thread other([&] { run(1); });
  run(0);
  other.join();
}

// Convolutions of many shapes, forward and backward, each with a reorder: the primitives that a large model keeps.
TEST(CpuBackend, OverheadStaysInsideItsBound) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer's own memory would be counted";
#endif
  // Counts the memory of the whole process, so it needs a process in which no other test has run.
  if (std::getenv("PLIMSOLL_ALONE") == nullptr) {
    const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
    EXPECT_EQ(std::system(fmt::format("PLIMSOLL_ALONE=1 '{}' --gtest_filter={}", program,
                                      "CpuBackend.OverheadStaysInsideItsBound")
                              .c_str()),
              0);
    return;
  }
  const auto backend = make_cpu_backend(2);
  std::vector<std::unique_ptr<BoundNodeUnderTest>> nodes;
  Bytes buffers = 0;
  BoundCounts counts;
  for (int64_t width = 1; width <= 40; ++width) {
    const TensorType x = floats({2, 10, 10, 8 * width}), w = floats({3, 3, 8 * width, 16});
    const TensorType y = floats({2, 10, 10, 16});
    for (const Problem& problem :
         {Problem{"conv2d", {x, w}, convolution(1)},
          Problem{"conv2d_input_grad", {y, w}, with(convolution(1), "input_size", Ints{10, 10})},
          Problem{"conv2d_weight_grad", {x, y}, with(convolution(1), "kernel", Ints{3, 3})}}) {
      nodes.push_back(
          std::make_unique<BoundNodeUnderTest>(*backend, single(problem.op, problem.inputs, problem.attrs), 0));
      nodes.back()->kernel->run();
      buffers += nodes.back()->bytes;
      counts += {1, nodes.back()->offer.primitives};
    }
    if (width == 1 || width == 10 || width == 40) {
      const Bytes held = resident() - buffers, bound = backend->device().overhead_bound(counts);
      fmt::print("{} primitives: {} beyond the buffers, bound {}\n", counts.primitives, format_bytes(held),
                 format_bytes(bound));
      EXPECT_LE(held, bound);
      EXPECT_EQ(bound % kMiB, 0);
    }
  }
}

}  // namespace
}  // namespace plimsoll::engine::testing
