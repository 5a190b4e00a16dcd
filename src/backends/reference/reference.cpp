#include "backends/reference/reference.h"

#include <fmt/format.h>
#include <omp.h>

#include "device/host_backend.h"
#include "device/host_room.h"
#include "ops/op.h"

namespace plimsoll::engine {
namespace {

constexpr const char* kKernel = "reference";
constexpr double kFlopsPerSecond = 2e9;  // a rough figure: these estimates are compared only with each other
// Upper bounds. Measured: 21 MiB with a small model from a file, 48 MiB with ResNet50 (1,900 nodes), including the ops'
// temporary buffers on the heap.
constexpr Bytes kProgram = 40 * kMiB, kNode = 24 * kKiB;

// Refuses floating-point values that are not f64. Casts are exempt because they bring in data of other types; fills,
// slices and copies are exempt because they handle any type.
Status check_types(const Graph& graph, const Node& node) {
  if (node.op == "cast" || node.op == "fill" || node.op == "slice" || node.op.starts_with("to_")) return {};
  for (const auto* list : {&node.inputs, &node.outputs})
    for (ValueId id : *list) {
      const Value& v = graph.value(id);
      if (is_floating(v.type.dtype) && v.type.dtype != DType::kFloat64)
        return fail(ErrorCode::kUnsupported, fmt::format("the reference backend computes in f64, but %{} of {} is {}",
                                                         v.name, node.op, to_text(v.type)));
      if (!v.layout.empty())
        return fail(ErrorCode::kUnsupported,
                    fmt::format("the reference backend reads row-major values only, but %{} of {} is in layout '{}'",
                                v.name, node.op, v.layout));
    }
  return {};
}

class ReferenceDevice : public Device {
 public:
  ReferenceDevice() {
    info_.name = "float64 reference";
    info_.kind = kKernel;
    info_.memory_bytes = host_memory_bytes();
    info_.free_bytes = free_host_bytes();
    info_.threads = omp_get_max_threads();
    info_.library = "own float64 loops";
  }

  const DeviceInfo& info() const override { return info_; }

  Result<KernelOffer> offer(const Graph& graph, const Node& node) const override {
    if (!find_op(node.op)) return fail(ErrorCode::kUnsupported, fmt::format("there is no op '{}'", node.op));
    PLIMSOLL_TRY(check_types(graph, node));
    // The op's reference function would allocate the image between convolution and pooling, which no plan counts.
    if (node.op.starts_with("conv2d_pooled"))
      return fail(ErrorCode::kUnsupported, "the reference backend has no fused convolution with pooling");
    KernelOffer offer;
    offer.kernel = kKernel;
    offer.seconds = flops_of(graph, node) / kFlopsPerSecond;
    return offer;
  }

  bool fuses(const Graph&, const Node&) const override { return false; }
  bool has_epilogues() const override { return false; }
  Bytes overhead_bound(const BoundCounts& counts) const override {
    return align_up(kProgram + counts.nodes * kNode, kMiB);
  }

 private:
  DeviceInfo info_;
};

class ReferenceKernel : public Kernel {
 public:
  explicit ReferenceKernel(const BoundNode& bound)
      : reference_(op_def(bound.node.op).reference),
        attrs_(bound.node.attrs),
        body_(bound.node.body),
        inputs_(views(bound.graph, bound.node.inputs, bound.inputs)),
        outputs_(views(bound.graph, bound.node.outputs, bound.outputs)) {}

  void run() override { reference_({inputs_, outputs_, attrs_, body_.get()}); }

 private:
  static std::vector<TensorView> views(const Graph& graph, const std::vector<ValueId>& ids,
                                       std::span<void* const> addresses) {
    assert(ids.size() == addresses.size());
    std::vector<TensorView> list;
    for (size_t i = 0; i < ids.size(); ++i) list.push_back({graph.type(ids[i]), addresses[i]});
    return list;
  }

  std::function<void(const ReferenceCall&)> reference_;
  Attrs attrs_;
  std::shared_ptr<const Graph> body_;
  std::vector<TensorView> inputs_, outputs_;
};

class ReferenceBackend : public HostBackend {
 public:
  const Device& device() const override { return device_; }

  Result<std::unique_ptr<Kernel>> bind(const BoundNode& bound) const override {
    if (bound.kernel != kKernel)
      return fail(ErrorCode::kBadPlan,
                  fmt::format("the reference has no kernel '{}' for {}", bound.kernel, bound.node.op));
    if (!find_op(bound.node.op))
      return fail(ErrorCode::kUnsupported, fmt::format("there is no op '{}'", bound.node.op));
    PLIMSOLL_TRY(check_types(bound.graph, bound.node));
    return std::make_unique<ReferenceKernel>(bound);
  }

 private:
  ReferenceDevice device_;
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend() {
  return std::make_unique<ReferenceBackend>();
}

}  // namespace plimsoll::engine
