// attention and attention_grad: cuDNN in half precision from compute capability 8.0 on, our own kernels otherwise.
#include "backends/cuda/attention/geometry.h"
#include "backends/cuda/convolution/geometry.h"
#include "backends/cuda/workspace.h"
#include "ops/op.h"

namespace plimsoll::engine::cuda {
namespace {

// The limits of cuDNN's fused attention, forward and backward: heads are multiples of 16 bytes and at most 128 wide.
bool library_takes(const Card& card, const Attention& a) {
  return is_half(a.dtype) && card.capability >= 80 && a.d % 8 == 0 && a.d <= 128 && a.t > 1;
}

// The forward pass needs very little workspace. The backward pass accumulates dq in float32, with positions and widths
// rounded up to tiles, plus two sums per row; engines use the same amount again for their own scheduling.
Bytes library_scratch(const Attention& a, bool backward) {
  const Bytes rows = a.n * a.h * align_up(a.t, 128), sums = rows * 4;
  if (!backward) return 2 * sums + kMiB;
  return 2 * rows * align_up(a.d, 64) * 4 + 4 * sums + 4 * kMiB;
}

}  // namespace

HeadStrides head_strides(int64_t t, int64_t h, int64_t d, int64_t parts) {
  return {t * parts * h * d, parts * h * d, d};
}

Attention::Attention(const NodeView& node)
    : causal(node.attrs().flag("causal")), scale(static_cast<float>(node.attrs().real("scale"))) {
  const size_t q = node.node.op == "attention" ? 0 : 1;
  const Shape& shape = node.in_shape(q);
  packed = shape.rank() == 5;
  n = shape[0], t = shape[1], h = shape[packed ? 3 : 2], d = shape.back();
  dtype = node.in_dtype(q);
  in = head_strides(t, h, d, packed ? 3 : 1);
  out = head_strides(t, h, d, 1);
}

// The kernels here take queries, keys and values of one shape, without masks.
bool is_plain(const NodeView& node) {
  const size_t q = node.node.op == "attention" ? 0 : 1;
  if (node.attrs().has("masks") || node.attrs().has("window")) return false;
  if (node.in_shape(q).rank() == 5) return true;
  return node.in_shape(q) == node.in_shape(q + 1) && node.in_shape(q) == node.in_shape(q + 2);
}

Result<KernelOffer> offer_attention(const Card& card, const NodeView& node) {
  if (!is_plain(node))
    return fail(
        ErrorCode::kUnsupported,
        node.node.op + ": the GPU has no attention with masks, with shared heads, or over another sequence yet");
  const Attention a(node);
  const bool backward = node.node.op == "attention_grad";
  if (!is_half(a.dtype) && a.dtype != DType::kFloat32)
    return fail(ErrorCode::kUnsupported, node.node.op + ": the GPU computes attention in f32, f16 and bf16, not " +
                                             std::string(name_of(a.dtype)));
  if (a.dtype == DType::kBFloat16 && !card.has_bfloat16())
    return fail(ErrorCode::kUnsupported, node.node.op + ": " + card.name + " has no bfloat16");
  if (a.d > kWidestHead)
    return fail(ErrorCode::kUnsupported, node.node.op + ": heads are at most " + std::to_string(kWidestHead) +
                                             " wide on the GPU, not " + std::to_string(a.d));
  const bool library = library_takes(card, a);
  const double flops = flops_of(node.graph, node.node);
  KernelOffer offer;
  offer.kernel = library ? kCudnnKernel : kFlashKernel;
  const Bytes own = backward ? a.rows() * 4 : 0;
  offer.workspace = granted(library ? library_scratch(a, backward) : own);
  offer.seconds = library ? matrix_seconds(card, a.dtype, flops, node.traffic(), backward ? 0.4 : 0.5)
                          : pass_seconds(card, node.traffic()) + flops / (0.1 * card.flops_f32);
  offer.primitives = library ? 1 : 0;
  return offer;
}

}  // namespace plimsoll::engine::cuda
