// Times single nodes on the CPU backend, at the shapes of the benchmark models. Prints milliseconds (the minimum of
// several runs), the resulting rates of arithmetic and memory traffic, and the prediction of the cost model.
//
//   bench_kernels [THREADS] [FILTER]
#include <fmt/format.h>
#include <omp.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>

#include "backends/cpu/cpu.h"
#include "ops/build.h"
#include "ops/op.h"

using namespace plimsoll::engine;

namespace {

struct Case {
  std::string name, op;
  std::vector<TensorType> inputs;
  Attrs attrs;
};

TensorType f32(std::vector<int64_t> dims) {
  return {DType::kFloat32, Shape(std::move(dims))};
}
TensorType u8(std::vector<int64_t> dims) {
  return {DType::kUInt8, Shape(std::move(dims))};
}

using Ints = std::vector<int64_t>;

void add_convolution(std::vector<Case>& cases, const std::string& name, Ints x, Ints w, Ints y, int64_t stride,
                     Ints pads, int64_t groups) {
  const Attrs base = {{"strides", Ints{stride, stride}}, {"pads", pads}, {"dilations", Ints{1, 1}}, {"groups", groups}};
  Attrs forward = base, input = base, weight = base;
  forward.set("activation", std::string("relu"));
  input.set("input_size", Ints{x[1], x[2]});
  weight.set("kernel", Ints{w[0], w[1]});
  weight.set("bias", true);
  cases.push_back({name, "conv2d", {f32(x), f32(w), f32({w[3]})}, forward});
  cases.push_back({name, "conv2d_input_grad", {f32(y), f32(w)}, input});
  cases.push_back({name, "conv2d_weight_grad", {f32(x), f32(y)}, weight});
}

// Convolutions along one dimension, of text and of signals.
void add_sequence_convolutions(std::vector<Case>& cases) {
  struct Sequence {
    int64_t n, steps, in, kernel, out, stride, dilation, pad;
  };
  for (const auto& s : {Sequence{32, 200, 64, 3, 64, 1, 1, 0},
                        {32, 200, 64, 5, 64, 1, 1, 0},
                        {128, 200, 64, 4, 64, 1, 1, 0},
                        {32, 1000, 100, 5, 128, 1, 1, 0},
                        {32, 400, 50, 3, 250, 1, 1, 0},
                        {16, 2000, 128, 7, 128, 3, 1, 0},
                        {16, 1024, 64, 3, 64, 1, 4, 8},
                        {8, 512, 512, 3, 512, 1, 1, 2},
                        {64, 16000, 1, 80, 32, 16, 1, 0},
                        {64, 248, 32, 3, 32, 1, 1, 2}}) {
    const int64_t steps = (s.steps + s.pad - (s.kernel - 1) * s.dilation - 1) / s.stride + 1;
    const Attrs base = {{"strides", Ints{1, s.stride}},
                        {"pads", Ints{0, 0, s.pad, 0}},
                        {"dilations", Ints{1, s.dilation}},
                        {"groups", int64_t{1}}};
    const std::string name =
        fmt::format("1-D {}x{}x{} k{}/{}/{}-{}", s.n, s.steps, s.in, s.kernel, s.stride, s.dilation, s.out);
    const TensorType x = f32({s.n, 1, s.steps, s.in}), w = f32({1, s.kernel, s.in, s.out}),
                     y = f32({s.n, 1, steps, s.out});
    Attrs input = base, weight = base;
    input.set("input_size", Ints{1, s.steps});
    weight.set("kernel", Ints{1, s.kernel});
    weight.set("bias", true);
    cases.push_back({name, "conv2d", {x, w, f32({s.out})}, base});
    cases.push_back({name, "conv2d_input_grad", {y, w}, input});
    cases.push_back({name, "conv2d_weight_grad", {x, y}, weight});
  }
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  add_sequence_convolutions(cases);
  const Ints none = {0, 0, 0, 0}, same = {1, 1, 1, 1}, down = {0, 1, 0, 1};
  add_convolution(cases, "seed_2 first", {128, 128, 128, 3}, {3, 3, 3, 32}, {128, 126, 126, 32}, 1, none, 1);
  add_convolution(cases, "seed_2 second", {128, 63, 63, 32}, {3, 3, 32, 64}, {128, 61, 61, 64}, 1, none, 1);
  add_convolution(cases, "resnet20 16", {128, 32, 32, 16}, {3, 3, 16, 16}, {128, 32, 32, 16}, 1, same, 1);
  add_convolution(cases, "resnet20 32/2", {128, 32, 32, 16}, {3, 3, 16, 32}, {128, 16, 16, 32}, 2, down, 1);
  add_convolution(cases, "resnet20 64", {128, 8, 8, 64}, {3, 3, 64, 64}, {128, 8, 8, 64}, 1, same, 1);
  add_convolution(cases, "depthwise 128", {128, 16, 16, 128}, {3, 3, 1, 128}, {128, 16, 16, 128}, 1, same, 128);
  // 1x1 convolutions of the models pointwise and depthwise, and the same as matrix products.
  struct Pointwise {
    int64_t pixels, in, out;
  };
  for (const auto& [pixels, in, out] : {Pointwise{32, 64, 128},
                                        {32, 128, 128},
                                        {32, 128, 256},
                                        {32, 256, 256},
                                        {32, 32, 64},
                                        {16, 64, 128},
                                        {16, 128, 128},
                                        {8, 128, 256}}) {
    const std::string name = fmt::format("pointwise {}: {}-{}", pixels, in, out);
    add_convolution(cases, name, {128, pixels, pixels, in}, {1, 1, in, out}, {128, pixels, pixels, out}, 1, none, 1);
    const int64_t rows = 128 * pixels * pixels;
    const TensorType x = f32({rows, in}), y = f32({rows, out}), w = f32({in, out});
    cases.push_back({name + " y", "matmul", {x, w, f32({out})}, {{"activation", std::string("relu")}}});
    cases.push_back({name + " dx", "matmul", {y, w}, {{"transpose_b", true}}});
    cases.push_back({name + " dw", "matmul", {x, y}, {{"transpose_a", true}}});
  }
  const Attrs pool = {{"pool", Ints{2, 2}}, {"strides", Ints{2, 2}}, {"pads", none}};
  Attrs pool_grad = pool;
  pool_grad.set("input_size", Ints{126, 126});
  cases.push_back({"seed_2 first", "max_pool2d", {f32({128, 126, 126, 32})}, pool});
  cases.push_back({"seed_2 first", "max_pool2d_grad", {f32({128, 63, 63, 32}), u8({128, 63, 63, 32})}, pool_grad});
  const Ints big = {128, 126, 126, 32};
  cases.push_back({"seed_2 first", "relu_grad", {f32(big), f32(big)}, {{"from", std::string("output")}}});
  cases.push_back({"seed_2 first", "relu", {f32(big)}, {}});
  cases.push_back({"seed_2 first", "bias_add", {f32(big), f32({32})}, {}});
  cases.push_back({"seed_2 first", "reduce_to", {f32(big)}, {{"shape", Ints{32}}}});
  cases.push_back({"seed_2 dense", "matmul", {f32({128, 57600}), f32({57600, 10}), f32({10})}, {}});
  cases.push_back({"seed_2 dense dw", "matmul", {f32({128, 57600}), f32({128, 10})}, {{"transpose_a", true}}});
  cases.push_back({"seed_2 dense dx", "matmul", {f32({128, 10}), f32({57600, 10})}, {{"transpose_b", true}}});
  cases.push_back({"square 1024", "matmul", {f32({1024, 1024}), f32({1024, 1024})}, {}});
  cases.push_back({"mlp", "matmul", {f32({128, 784}), f32({784, 512}), f32({512})}, {}});
  const TensorType w = f32({57600, 10});
  const TensorType scalar = f32({}), iteration = {DType::kInt64, Shape{}};
  cases.push_back({"seed_2 dense",
                   "adam",
                   {w, w, w, w, scalar, iteration},
                   {{"beta_1", 0.9}, {"beta_2", 0.999}, {"epsilon", 1e-7}}});
  const Ints res = {128, 32, 32, 16};
  const TensorType c = f32({16});
  cases.push_back({"resnet20 16", "batch_norm_stats", {f32(res)}, {}});
  cases.push_back({"resnet20 16",
                   "batch_norm_apply",
                   {f32(res), c, c, c, c},
                   {{"epsilon", 1e-3}, {"scale", true}, {"center", true}}});
  cases.push_back({"resnet20 16", "batch_norm_grad_stats", {f32(res), f32(res), c, c}, {{"epsilon", 1e-3}}});
  cases.push_back({"resnet20 16",
                   "batch_norm_input_grad",
                   {f32(res), f32(res), c, c, c, c, c},
                   {{"epsilon", 1e-3}, {"scale", true}}});
  const Ints acts = {128, 32, 32, 64};
  const TensorType rng = {DType::kInt64, Shape{2}}, first = {DType::kInt64, Shape{1}};
  for (const char* op : {"sigmoid", "tanh", "gelu", "silu", "softmax"}) cases.push_back({"8M", op, {f32(acts)}, {}});
  cases.push_back({"8M", "gelu_grad", {f32(acts), f32(acts)}, {}});
  cases.push_back({"8M", "dropout", {f32(acts), rng, first}, {{"rate", 0.5}, {"call", int64_t{1}}}});
  cases.push_back(
      {"8M", "layer_norm", {f32(acts), f32({64}), f32({64})}, {{"epsilon", 1e-3}, {"scale", true}, {"center", true}}});
  cases.push_back({"8M", "global_avg_pool2d", {f32(acts)}, {}});
  return cases;
}

void* allocate(Bytes bytes) {
  return std::aligned_alloc(64, static_cast<size_t>(align_up(std::max<Bytes>(bytes, 1))));
}

// Fills floats with positive and negative values, and other types with valid labels and positions.
void fill(const TensorType& type, void* data) {
  std::mt19937 random(1);
  if (type.dtype == DType::kFloat32) {
    std::uniform_real_distribution<float> draw(-1, 1);
    for (int64_t i = 0; i < type.shape.elements(); ++i)
      static_cast<float*>(data)[i] = i < 4096 ? draw(random) : static_cast<float*>(data)[i % 4096];
    if (type.shape.elements() <= 4096)
      for (int64_t i = 0; i < type.shape.elements(); ++i)
        static_cast<float*>(data)[i] = std::abs(static_cast<float*>(data)[i]);
  } else {
    std::memset(data, 0, static_cast<size_t>(type.bytes()));
    if (type.dtype == DType::kInt64) static_cast<int64_t*>(data)[0] = 3;
  }
}

// Returns the processor time of all threads. On a busy machine, with one thread, it is more accurate than the wall
// clock.
double processor_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}
double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int run_case(const Backend& backend, const Case& one) {
  GraphBuilder b = make_builder();
  std::vector<ValueId> inputs;
  for (const auto& type : one.inputs) inputs.push_back(b.input("x", type, Category::kInputs, false));
  b.add(one.op, inputs, one.attrs);
  if (!b.status()) return fmt::print("{}\n", to_text(b.status().error())), 1;
  Graph graph = b.take();
  const Node node = graph.nodes[0];
  const double asked = seconds_now();
  const auto offer = backend.device().offer(graph, node);
  const double answered = seconds_now();
  if (!offer) return fmt::print("{}\n", to_text(offer.error())), 1;
  std::vector<void*> in, out;
  double bytes = 0;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    Value& value = graph.value(node.inputs[i]);
    if (!offer->inputs.empty()) value.layout = offer->inputs[i].name, value.layout_bytes = offer->inputs[i].bytes;
    in.push_back(allocate(std::max(value.bytes(), value.type.bytes())));
    fill(value.type, in.back());
    bytes += static_cast<double>(value.bytes());
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    Value& value = graph.value(node.outputs[i]);
    if (!offer->outputs.empty()) value.layout = offer->outputs[i].name, value.layout_bytes = offer->outputs[i].bytes;
    out.push_back(allocate(value.bytes()));
    bytes += static_cast<double>(value.bytes());
  }
  void* workspace = allocate(offer->workspace);
  auto kernel = backend.bind({graph, node, offer->kernel, in, out, workspace, offer->workspace});
  if (!kernel) return fmt::print("{}\n", to_text(kernel.error())), 1;
  double best = 1e9, work = 1e9, spent = 0;
  for (int i = 0; i < 200 && (i < 4 || spent < 1.0); ++i) {
    const double start = seconds_now(), work_start = processor_seconds();
    (*kernel)->run();
    const double took = seconds_now() - start;
    best = std::min(best, took);
    work = std::min(work, processor_seconds() - work_start);
    spent += took;
  }
  const double flops = flops_of(graph, node);
  fmt::print(
      "{:18} {:22} {:26} {:9.3f} ms ({:8.3f} of a processor)  model {:9.3f}  {:7.1f} GF/s {:6.1f} GB/s  workspace {:9} "
      " offer {:5.0f} us\n",
      one.name, one.op, offer->kernel, best * 1e3, work * 1e3, offer->seconds * 1e3, flops / best * 1e-9,
      bytes / best * 1e-9, offer->workspace, (answered - asked) * 1e6);
  for (void* p : in) std::free(p);
  for (void* p : out) std::free(p);
  std::free(workspace);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : omp_get_num_procs();
  const std::string filter = argc > 2 ? argv[2] : "";
  const auto backend = make_cpu_backend(threads);
  fmt::print("{}\n", backend->device().info().name);
  int failed = 0;
  for (const Case& one : all_cases()) {
    if ((one.name + " " + one.op).find(filter) != std::string::npos) failed += run_case(*backend, one);
  }
  return failed;
}
