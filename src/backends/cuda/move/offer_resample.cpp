// Offers for resample, adaptive_max_pool and their gradients. The table of weights lies in the workspace.
#include "backends/cuda/move/resample.h"
#include "backends/cuda/own_kernel.h"
#include "backends/cuda/workspace.h"

namespace plimsoll::engine::cuda {

Result<KernelOffer> offer_resample(const Card& card, const NodeView& node) {
  PLIMSOLL_TRY(require_compute_input(node, 0));
  PLIMSOLL_TRY(require_same_dtype(node, 0, 0));
  constexpr int64_t kMostElements = int64_t{1} << 30;  // kernels index within a line with 32 bits
  const bool grad = node.node.op.ends_with("_grad"), max = node.node.op.starts_with("adaptive_max");
  if (!max && !has_table(node.attrs().text("method")))
    return refuse(node, fmt::format("method \"{}\" has no kernel for GPUs yet", node.attrs().text("method")));
  const ResampleMethod method = max ? ResampleMethod::kAverage : resample_method(node.attrs().text("method"));
  const Shape &large = grad ? node.out_shape(0) : node.in_shape(0),
              &small = grad ? node.in_shape(0) : node.out_shape(0);
  const ResampleLines l = resample_lines(large, small, node.attrs().integer("axis"), method);
  if (std::max(l.input, l.output) * l.inner > kMostElements)
    return refuse(node, fmt::format("dimension {} of [{}] has more than 2^30 elements", node.attrs().integer("axis"),
                                    to_text(large)));
  const int passes = max ? 1 : 2;
  return own_offer(node.node.op, max ? 0 : granted(l.table_bytes()),
                   pass_seconds(card, node.traffic()) + (passes - 1) * kLaunchSeconds);
}

}  // namespace plimsoll::engine::cuda
