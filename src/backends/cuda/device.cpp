#include "backends/cuda/device.h"

#include <fmt/format.h>

#include "backends/cuda/cuda.h"
#include "backends/cuda/fused/kernel.h"
#include "backends/cuda/kernel_limits.h"
#include "backends/cuda/kernels.h"

namespace plimsoll::engine {
namespace cuda {
namespace {

Status check(const NodeView& view) {
  const std::string& op = view.node.op;
  const bool looks_at_layouts = op == "reorder" || op.starts_with("conv") || op.starts_with("to_");
  const bool casts = op == "cast" || op == "fused";
  return check_values(view, looks_at_layouts, [=](DType dtype) -> std::string {
    return dtype == DType::kFloat64 && !casts ? "the GPU backend does not compute in f64" : "";
  });
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
  info_.bytes_per_second = card_.bytes_per_second;
  info_.flops_per_second = card_.has_tf32() ? card_.flops_tf32 : card_.flops_f32;
  info_.half_flops_per_second = card_.flops_half;
  info_.driver = card_.driver;
  info_.library = "cuDNN 9, cuBLASLt, own kernels";
}

Result<KernelOffer> CudaDevice::offer(const Graph& graph, const Node& node) const {
  const NodeView view{graph, node};
  const KernelEntry* kernel = kernel_of(node.op);
  if (kernel == nullptr)
    return fail(ErrorCode::kUnsupported, fmt::format("the GPU backend has no kernel for {}", node.op));
  PLIMSOLL_TRY(check(view));
  return kernel->offer(card_, view);
}

bool CudaDevice::fuses(const Graph& graph, const Node& node) const {
  // batch_norm_stats shifts by the tensor's first row, so the tensor must exist in memory.
  return node.op != "batch_norm_stats" && has_fused_form(graph, node);
}

// Grouping pays because launching one kernel costs as much time as some megabytes of traffic.
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
  return best_padding(NodeView{graph, node});
}

// The context with the libraries' handles, plus the memory that kernels and captured graphs take when they are loaded.
Bytes CudaDevice::overhead_bound(const BoundCounts& counts) const {
  constexpr Bytes kPrimitive = 16 * kKiB;
  return align_up(card_.context_bytes + counts.primitives * kPrimitive, kMiB);
}

Result<KernelOffer> offer_fused(const Card& card, const NodeView& view) {
  PLIMSOLL_ASSIGN(const FusedKernel pass, plan_fused_kernel(view.graph, view.node));
  KernelOffer offer;
  offer.kernel = "pass";
  offer.workspace = pass.workspace(card);
  offer.seconds = pass_seconds(card, view.traffic()) + arithmetic_seconds(card, view.graph, view.node, pass);
  offer.primitives = 1;
  return offer;
}

// A backend for a card that is not present: it can plan, but not run.
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
                 fmt::format("{} is not in this machine: plans can be made for it, but nothing can run on it",
                             device_.info().name),
                 {},
                 {"--device gpu   on a machine that has such a card", "plimsoll plan   needs no card"}};
  }

  CudaDevice device_;
};

}  // namespace cuda

std::unique_ptr<Backend> make_planned_gpu(cuda::Card card) {
  return std::make_unique<cuda::PlannedGpu>(std::move(card));
}

}  // namespace plimsoll::engine
