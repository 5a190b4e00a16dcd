// A node bound to its own buffers.
#pragma once

#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#include "device/kernel.h"
#include "ops/build.h"
#include "ops/op.h"

namespace plimsoll::engine::testing {

class BoundNodeUnderTest {
 public:
  // Sets the layouts to those the offer asks for. The inputs are undefined until they are written.
  BoundNodeUnderTest(const Backend& backend, Graph graph, size_t n) : graph_(std::move(graph)) {
    const Node node = graph_.nodes[n];
    auto asked = backend.device().offer(graph_, node);
    if (!asked) throw std::runtime_error(to_text(asked.error()));
    offer = *asked;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!offer.inputs.empty()) set_layout(node.inputs[i], offer.inputs[i]);
      in.push_back(allocate(graph_.value(node.inputs[i]).bytes()));
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (!offer.outputs.empty()) set_layout(node.outputs[i], offer.outputs[i]);
      out.push_back(allocate(graph_.value(node.outputs[i]).bytes()));
    }
    workspace_ = allocate(offer.workspace);
    auto bound = backend.bind({graph_, graph_.nodes[n], offer.kernel, in, out, workspace_, offer.workspace});
    if (!bound) throw std::runtime_error(to_text(bound.error()));
    kernel = std::move(*bound);
    bytes = 0;
    for (const auto& buffer : buffers_) bytes += buffer.second;
  }

  template <typename T = float>
  T* input(size_t i) const {
    return static_cast<T*>(in[i]);
  }
  template <typename T = float>
  T* output(size_t i) const {
    return static_cast<T*>(out[i]);
  }

  KernelOffer offer;
  std::vector<void*> in, out;
  std::unique_ptr<Kernel> kernel;
  Bytes bytes = 0;  // total size of all buffers

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };

  void set_layout(ValueId id, const Layout& layout) {
    graph_.value(id).layout = layout.name;
    graph_.value(id).layout_bytes = layout.bytes;
  }
  void* allocate(Bytes size) {
    const Bytes padded = align_up(std::max<Bytes>(size, 1));
    buffers_.emplace_back(std::aligned_alloc(64, static_cast<size_t>(padded)), padded);
    std::fill_n(static_cast<char*>(buffers_.back().first.get()), padded, '\0');
    return buffers_.back().first.get();
  }

  Graph graph_;
  void* workspace_ = nullptr;
  std::vector<std::pair<std::unique_ptr<void, Free>, Bytes>> buffers_;
};

// A graph of one node.
inline Graph single(const std::string& op, const std::vector<TensorType>& inputs, const Attrs& attrs) {
  GraphBuilder b = make_builder();
  std::vector<ValueId> ids;
  for (const auto& type : inputs) ids.push_back(b.input("x", type, Category::kInputs, false));
  b.add(op, ids, attrs, "y");
  if (!b.status()) throw std::runtime_error(to_text(b.status().error()));
  return b.take();
}

inline void fill_normal(float* x, int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> draw;
  for (int64_t i = 0; i < n; ++i) x[i] = draw(random);
}

inline TensorType floats(std::vector<int64_t> dims) {
  return {DType::kFloat32, Shape(std::move(dims))};
}

}  // namespace plimsoll::engine::testing
