// attention and attention_grad: cuDNN in half precision from compute capability 8.0 on, our own kernels otherwise.
#include "backends/cuda/attention/geometry.h"
#include "backends/cuda/convolution/geometry.h"
#include "backends/cuda/workspace.h"
#include "ops/op.h"

namespace plimsoll::engine::cuda {
namespace {

// The limits of cuDNN's fused attention, forward and backward: heads are multiples of 16 bytes and at most 128 wide. It
// has no masks of any shape, and our windows look to both sides.
bool library_takes(const Card& card, const Attention& a) {
  const AttentionForm& f = a.form;
  return is_half(a.dtype) && card.capability >= 80 && f.d % 8 == 0 && f.d <= 128 && f.dv == f.d && f.tq > 1 &&
         f.tk > 1 && !a.masked() && f.window == 0;
}

// The forward pass needs very little workspace. The backward pass accumulates dq in float32, with positions and widths
// rounded up to tiles, plus two sums per row; engines use the same amount again for their own scheduling. With shared
// heads, the gradients of keys and values are made per query head first.
Bytes library_scratch(const Attention& a, bool backward) {
  const AttentionForm& f = a.form;
  const Bytes rows = f.n * f.h * align_up(f.tq, 128), sums = rows * 4;
  if (!backward) return 2 * sums + kMiB;
  const Bytes shared = f.h == f.g ? 0 : 2 * f.n * f.h * align_up(f.tk, 128) * align_up(f.d, 64) * 4;
  return 2 * rows * align_up(f.d, 64) * 4 + 4 * sums + shared + 4 * kMiB;
}

}  // namespace

HeadStrides head_strides(int64_t t, int64_t h, int64_t d, int64_t parts) {
  return {t * parts * h * d, parts * h * d, d};
}

Attention::Attention(const Card& card, const NodeView& node)
    : form(attention_form(node.node.op, node.inputs(), node.attrs(),
                          [&](size_t i) -> const Shape& { return node.in_shape(i); })),
      scale(static_cast<float>(form.scale)),
      matrix(card.capability >= 80) {
  const size_t first = node.node.op == "attention" ? 0 : 1;
  dtype = node.in_dtype(first);
  q = head_strides(form.tq, form.h, form.d, form.parts);
  k = head_strides(form.tk, form.g, form.d, form.parts);
  v = head_strides(form.tk, form.g, form.dv, form.parts);
  y = head_strides(form.tq, form.h, form.dv, 1);
  for (size_t i = 0; i < form.masks.size(); ++i) {
    const char letter = form.masks[i];
    AttentionMask& mask = letter == 'q' ? q_mask : letter == 'k' ? k_mask : m_mask;
    mask = AttentionMask{static_cast<int>(first + 3 + i), node.in_dtype(first + 3 + i)};
  }
}

Result<KernelOffer> offer_attention(const Card& card, const NodeView& node) {
  const Attention a(card, node);
  const bool backward = node.node.op == "attention_grad";
  if (!is_half(a.dtype) && a.dtype != DType::kFloat32)
    return fail(ErrorCode::kUnsupported, node.node.op + ": the GPU computes attention in f32, f16 and bf16, not " +
                                             std::string(name_of(a.dtype)));
  if (a.dtype == DType::kBFloat16 && !card.has_bfloat16())
    return fail(ErrorCode::kUnsupported, node.node.op + ": " + card.name + " has no bfloat16");
  if (a.widest() > kWidestHead)
    return fail(ErrorCode::kUnsupported, node.node.op + ": heads are at most " + std::to_string(kWidestHead) +
                                             " wide on the GPU, not " + std::to_string(a.widest()));
  for (const AttentionMask& mask : {a.q_mask, a.k_mask, a.m_mask})
    if (mask.input >= 0 && !is_half(mask.dtype) && mask.dtype != DType::kFloat32)
      return fail(ErrorCode::kUnsupported,
                  node.node.op + ": masks are f32, f16 or bf16 on the GPU, not " + std::string(name_of(mask.dtype)));
  const bool library = library_takes(card, a);
  const double flops = flops_of(node.graph, node.node);
  KernelOffer offer;
  offer.kernel = library ? kCudnnKernel : kFlashKernel;
  const Bytes own = backward ? a.own_scratch() : 0;
  offer.workspace = granted(library ? library_scratch(a, backward) : own);
  offer.seconds = library        ? matrix_seconds(card, a.dtype, flops, node.traffic(), backward ? 0.4 : 0.5)
                  : a.in_tiles() ? matrix_seconds(card, a.dtype, flops, node.traffic(), backward ? 0.12 : 0.2)
                                 : pass_seconds(card, node.traffic()) + flops / (0.1 * card.flops_f32);
  offer.primitives = library ? 1 : 0;
  return offer;
}

}  // namespace plimsoll::engine::cuda
