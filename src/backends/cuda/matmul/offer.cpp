// matmul: cuBLASLt, with bias and relu in its epilogue, or our split-K kernel for few columns and long sums.
// batch_matmul: cuBLASLt with strided batches.
#include <algorithm>

#include "backends/cuda/kernels.h"
#include "backends/cuda/matmul/split_k.h"
#include "backends/cuda/workspace.h"
#include "ops/op.h"

namespace plimsoll::engine::cuda {
namespace {

constexpr Bytes kMostScratch = 32 * kMiB;
constexpr Bytes kSplits = 8;  // partial results in float32 if the k dimension is split
constexpr double kEfficiency = 0.65;

Status check_dtype(const Card& card, const NodeView& node) {
  const DType dtype = node.in_dtype(0);
  if (dtype != DType::kFloat32 && dtype != DType::kFloat16 && dtype != DType::kBFloat16)
    return fail(ErrorCode::kUnsupported,
                node.node.op + ": the GPU multiplies f32, f16 and bf16, not " + std::string(name_of(dtype)));
  if (dtype == DType::kBFloat16 && !card.has_bfloat16())
    return fail(ErrorCode::kUnsupported, node.node.op + ": " + card.name + " has no bfloat16");
  return {};
}

}  // namespace

Result<KernelOffer> offer_matmul(const Card& card, const NodeView& node) {
  const DType dtype = node.in_dtype(0);
  PLIMSOLL_TRY(check_dtype(card, node));
  const Shape &a = node.in_shape(0), &y = node.out_shape(0);
  const bool plain = !node.attrs().flag("transpose_a") && !node.attrs().flag("transpose_b");
  if (plain && is_split_k(y[0], y[1], a[1])) {
    KernelOffer offer;
    offer.kernel = kSplitKKernel;
    offer.workspace = granted(plan_split_k(y[0], a[1]).chunks * y.elements() * 4);
    offer.seconds = pass_seconds(card, node.traffic()) + kLaunchSeconds;
    return offer;
  }
  KernelOffer offer;
  offer.kernel = "cublaslt";
  offer.workspace = granted(std::min(kMostScratch, kSplits * 4 * node.out_shape(0).elements() + kMiB));
  // Tiles have 64 rows, so a small batch leaves most of a tile empty.
  const double fill = std::min(1.0, static_cast<double>(node.out_shape(0)[0]) / 64);
  offer.seconds =
      matrix_seconds(card, dtype, flops_of(node.graph, node.node), node.traffic(), kEfficiency * std::max(fill, 0.05));
  offer.primitives = 1;
  return offer;
}

Result<KernelOffer> offer_batch_matmul(const Card& card, const NodeView& node) {
  constexpr int64_t kMostProducts = (int64_t{1} << 31) - 1;
  PLIMSOLL_TRY(check_dtype(card, node));
  const Shape& y = node.out_shape(0);
  if (y[0] > kMostProducts) return fail(ErrorCode::kUnsupported, "batch_matmul: more than 2^31 - 1 products");
  KernelOffer offer;
  offer.kernel = "cublaslt";
  offer.workspace = granted(std::min(kMostScratch, kSplits * 4 * y.elements() + kMiB));
  const double fill = std::min(1.0, static_cast<double>(std::min(y[1], y[2])) / 64);
  offer.seconds = matrix_seconds(card, node.in_dtype(0), flops_of(node.graph, node.node), node.traffic(),
                                 kEfficiency * std::max(fill, 0.05));
  offer.primitives = 1;
  return offer;
}

}  // namespace plimsoll::engine::cuda
