// Measures how well cuDNN fuses BatchNorm with a convolution on this card: the convolution alone; with the sums of its
// output (BatchNorm's statistics); and also with scale, bias and relu before it (BatchNorm applied). Prints the time of
// the fastest engine of each, in microseconds, for shapes of ResNet-50.
//
//   nvcc -std=c++20 -O2 -arch=native -I CUDNN-FRONTEND bench/gpu/conv_stats.cpp -lcudnn -lnvrtc -o conv_stats &&
//   ./conv_stats
#include <cuda_runtime.h>
#include <cudnn_frontend.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <unordered_map>
#include <vector>

namespace fe = cudnn_frontend;

namespace {

constexpr int64_t kBatch = 256;
constexpr int kMostTimed = 12;
constexpr size_t kWorkspace = size_t{256} << 20;

struct Shape {
  int64_t size, channels, filters, kernel, stride;
};

// One shape of each kind: all of ResNet-50's except the first convolution.
const Shape kShapes[] = {{56, 64, 64, 1, 1},   {56, 64, 64, 3, 1},   {56, 64, 256, 1, 1},   {56, 256, 64, 1, 1},
                         {56, 256, 128, 1, 1}, {56, 128, 128, 3, 2}, {28, 128, 512, 1, 1},  {28, 512, 128, 1, 1},
                         {28, 128, 128, 3, 1}, {28, 256, 256, 3, 2}, {14, 256, 1024, 1, 1}, {14, 1024, 256, 1, 1},
                         {14, 256, 256, 3, 1}, {14, 512, 512, 3, 2}, {7, 512, 2048, 1, 1},  {7, 2048, 512, 1, 1},
                         {7, 512, 512, 3, 1}};

enum What { kAlone, kSums, kAppliedAndSums };

void* device_memory(size_t bytes) {
  void* p = nullptr;
  if (cudaMalloc(&p, bytes) != cudaSuccess) std::exit(1);
  cudaMemset(p, 0x3c, bytes);  // 0x3c3c: 0.011 in bf16, 1.06 in f16
  return p;
}

std::shared_ptr<fe::graph::Tensor_attributes> image(fe::graph::Graph& graph, int64_t uid, int64_t c, int64_t h,
                                                    fe::DataType_t type, int64_t n = kBatch) {
  return graph.tensor(fe::graph::Tensor_attributes()
                          .set_uid(uid)
                          .set_dim({n, c, h, h})
                          .set_stride({h * h * c, 1, h * c, c})
                          .set_data_type(type));
}

// Returns the microseconds of the fastest engine, or prints the reason and returns -1.
double fastest(cudnnHandle_t handle, const Shape& s, What what, fe::DataType_t type,
               std::unordered_map<int64_t, void*>& memory, void* workspace, std::string& why) {
  fe::graph::Graph graph;
  graph.set_io_data_type(type)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  auto x = image(graph, 1, s.channels, s.size, type);
  if (what == kAppliedAndSums) {
    auto scale = image(graph, 5, s.channels, 1, fe::DataType_t::FLOAT, 1);
    auto bias = image(graph, 6, s.channels, 1, fe::DataType_t::FLOAT, 1);
    const auto pointwise = [](fe::PointwiseMode_t mode) { return fe::graph::Pointwise_attributes().set_mode(mode); };
    x = graph.pointwise(x, scale, pointwise(fe::PointwiseMode_t::MUL));
    x = graph.pointwise(x, bias, pointwise(fe::PointwiseMode_t::ADD));
    x = graph.pointwise(x, pointwise(fe::PointwiseMode_t::RELU_FWD));
    x->set_data_type(type);
  }
  auto w = graph.tensor(fe::graph::Tensor_attributes()
                            .set_uid(2)
                            .set_dim({s.filters, s.channels, s.kernel, s.kernel})
                            .set_stride({s.channels * s.kernel * s.kernel, 1, s.channels * s.kernel, s.channels})
                            .set_data_type(type));
  const int64_t pad = s.kernel / 2;
  auto y = graph.conv_fprop(
      x, w,
      fe::graph::Conv_fprop_attributes().set_padding({pad, pad}).set_stride({s.stride, s.stride}).set_dilation({1, 1}));
  y->set_output(true).set_uid(3).set_data_type(type);
  if (what != kAlone) {
    auto [sum, squares] = graph.genstats(y, fe::graph::Genstats_attributes());
    sum->set_output(true).set_uid(7).set_data_type(fe::DataType_t::FLOAT);
    squares->set_output(true).set_uid(8).set_data_type(fe::DataType_t::FLOAT);
  }
  const auto bad = [&](fe::error_t status) {
    if (status.is_bad()) why = status.get_message().substr(0, 90);
    return status.is_bad();
  };
  try {
    if (bad(graph.validate()) || bad(graph.build_operation_graph(handle)) ||
        bad(graph.create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::B, fe::HeurMode_t::FALLBACK})))
      return -1;
    graph.deselect_workspace_greater_than(kWorkspace);
    cudaEvent_t begin, end;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    double best = -1;
    int timed = 0;
    for (int64_t i = 0; i < graph.get_execution_plan_count() && timed < kMostTimed; ++i) {
      if (bad(graph.build_plan_at_index(handle, i))) continue;
      bool runs = true;
      for (int k = 0; k < 3 && runs; ++k) runs = !bad(graph.execute_plan_at_index(handle, memory, workspace, i));
      if (!runs || cudaDeviceSynchronize() != cudaSuccess) continue;
      ++timed;
      constexpr int kRepeats = 10;
      cudaEventRecord(begin);
      for (int k = 0; k < kRepeats; ++k) (void)graph.execute_plan_at_index(handle, memory, workspace, i);
      cudaEventRecord(end);
      cudaEventSynchronize(end);
      float ms = 0;
      cudaEventElapsedTime(&ms, begin, end);
      const double us = static_cast<double>(ms) * 1e3 / kRepeats;
      if (best < 0 || us < best) best = us;
    }
    return best;
  } catch (const std::exception& error) {
    why = std::string(error.what()).substr(0, 90);
    return -1;
  }
}

}  // namespace

int main() {
  cudnnHandle_t handle = nullptr;
  if (cudnnCreate(&handle) != CUDNN_STATUS_SUCCESS) return 1;
  const size_t image_bytes = size_t{2} * kBatch * 56 * 56 * 256;
  std::unordered_map<int64_t, void*> memory = {{1, device_memory(image_bytes)}, {2, device_memory(64 << 20)},
                                               {3, device_memory(image_bytes)}, {5, device_memory(1 << 20)},
                                               {6, device_memory(1 << 20)},     {7, device_memory(1 << 20)},
                                               {8, device_memory(1 << 20)}};
  void* const workspace = device_memory(kWorkspace);
  std::printf("%-26s %-5s %9s %9s %9s\n", "us", "", "alone", "sums", "applied+sums");
  for (const auto& [type, name] : {std::pair{fe::DataType_t::BFLOAT16, "bf16"}, {fe::DataType_t::HALF, "f16"}})
    for (const Shape& s : kShapes) {
      if (type == fe::DataType_t::HALF && &s - kShapes >= 4)
        continue;  // a few shapes, to see whether f16 has more engines
      std::string why;
      std::printf("%lldx%lld %lld -> %lld, %lldx%lld/%lld %s", (long long)s.size, (long long)s.size,
                  (long long)s.channels, (long long)s.filters, (long long)s.kernel, (long long)s.kernel,
                  (long long)s.stride, name);
      for (const What what : {kAlone, kSums, kAppliedAndSums})
        std::printf(" %9.1f", fastest(handle, s, what, type, memory, workspace, why));
      std::printf("  %s\n", why.c_str());
      std::fflush(stdout);
    }
  return 0;
}
