#include "backends/cuda/device.h"

#include <fmt/format.h>

#include "backends/cuda/cuda.h"
#include "backends/cuda/fused/kernel.h"
#include "backends/cuda/kernel_limits.h"
#include "backends/cuda/kernels.h"

namespace plimsoll {
namespace cuda {
namespace {

Status check_values(const NodeView& view) {
  const std::string& op = view.node.op;
  const bool looks_itself = op == "reorder" || op.starts_with("conv2d") || op.starts_with("to_");
  for (const auto* list : {&view.node.inputs, &view.node.outputs})
    for (ValueId id : *list) {
      const Value& value = view.graph.value(id);
      if (!looks_itself && !value.layout.empty())
        return fail(ErrorCode::kUnsupported, fmt::format("{}: '{}' is not row-major", op, value.name));
      if (value.type.dtype == DType::kFloat64 && op != "cast" && op != "fused")
        return fail(ErrorCode::kUnsupported,
                    fmt::format("{}: '{}' is f64; a GPU computes in f32 at most", op, value.name));
    }
  return {};
}

}  // namespace

CudaDevice::CudaDevice(Card card) : card_(std::move(card)) {
  info_.name = card_.name;
  info_.kind = "gpu";
  info_.memory = fmt::format("gpu:{}", card_.ordinal);
  info_.memory_bytes = card_.memory_bytes;
  info_.free_bytes = card_.free_bytes;
  info_.own_memory = true;
  info_.has_bfloat16 = card_.has_bfloat16();
  info_.tf32 = card_.has_tf32();
  info_.memory_growth = card_.memory_growth;
  info_.library = "cuDNN 9, cuBLASLt, own kernels";
}

Result<KernelOffer> CudaDevice::offer(const Graph& graph, const Node& node) const {
  const NodeView view{graph, node};
  const Rule rule = rule_for(node.op);
  if (rule == nullptr)
    return fail(ErrorCode::kUnsupported, fmt::format("the GPU backend has no kernel for {}", node.op));
  PLIMSOLL_TRY(check_values(view));
  return rule(card_, view);
}

bool CudaDevice::fuses(const Graph& graph, const Node& node) const {
  // Moments are taken about the tensor's first row, which must therefore exist.
  return node.op != "batch_norm_stats" && has_fused_form(graph, node);
}

// One kernel's start is worth some megabytes of traffic.
bool CudaDevice::groups(const Graph& graph, const Node& node) const {
  if (node.op == "reorder") return true;
  if (node.body) {
    for (const Node& inner : node.body->nodes)
      if (!has_fused_form(*node.body, inner)) return false;
    return true;
  }
  return has_fused_form(graph, node);
}

size_t CudaDevice::largest_group(const Graph&, const Node& node) const {
  if (node.op == "reorder") return kMovesAtOnce;
  const size_t pointers = node.inputs.size() + node.outputs.size();
  return kMostTableBytes / table_bytes(1, pointers);
}

Padding CudaDevice::padding(const Graph& graph, const Node& node) const {
  return padding_rule(NodeView{graph, node});
}

// The context with the libraries' handles, then what kernels and captured graphs take as they are loaded.
Bytes CudaDevice::overhead_bound(int primitives) const {
  constexpr Bytes kPrimitive = 16 * kKiB;
  return align_up(card_.context_bytes + primitives * kPrimitive, kMiB);
}

Result<KernelOffer> fused_rule(const Card& card, const NodeView& view) {
  PLIMSOLL_ASSIGN(const FusedKernel pass, make_fused_kernel(view.graph, view.node));
  KernelOffer offer;
  offer.kernel = "pass";
  offer.workspace = pass.workspace(card);
  offer.seconds = pass_seconds(card, view.traffic());
  offer.primitives = 1;
  return offer;
}

// Has everything of a backend but the card.
class PlannedGpu final : public Backend {
 public:
  explicit PlannedGpu(Card card) : device_(std::move(card)) {}

  const Device& device() const override { return device_; }
  Status check_room(Bytes) const override { return fail(absent()); }
  Result<std::unique_ptr<Memory>> reserve(Space, Bytes) const override { return fail(absent()); }
  Result<std::unique_ptr<Kernel>> bind(const BoundNode&) const override { return fail(absent()); }
  Bytes held_bytes() const override { return 0; }
  Bytes peak_held_bytes() const override { return 0; }
  std::string counted_by() const override { return "nobody"; }

 private:
  Error absent() const {
    return Error{ErrorCode::kLibraryMissing,
                 fmt::format("{} is planned for, not present: nothing can run on it", device_.info().name),
                 {},
                 {"--device gpu on a machine that has one", "plimsoll plan, which needs no card"}};
  }

  CudaDevice device_;
};

}  // namespace cuda

std::unique_ptr<Backend> make_planned_gpu(cuda::Card card) {
  return std::make_unique<cuda::PlannedGpu>(std::move(card));
}

}  // namespace plimsoll
