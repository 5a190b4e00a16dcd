// The table from op to kernel, and the cost model of memory traffic and matrix products.
#include "backends/cuda/kernels.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "backends/cuda/fused/writer.h"

namespace plimsoll::engine::cuda {

// Each family is defined in its folder: offers in offer*.cpp, binders in bind*.cpp. Only the binders need CUDA to
// build.
Result<KernelOffer> offer_convolution(const Card& card, const NodeView& node);
Result<KernelOffer> offer_pooled_convolution(const Card& card, const NodeView& node);
Result<KernelOffer> offer_matmul(const Card& card, const NodeView& node);
Result<KernelOffer> offer_attention(const Card& card, const NodeView& node);
Result<KernelOffer> offer_recurrent(const Card& card, const NodeView& node);
Result<KernelOffer> offer_fused(const Card& card, const NodeView& node);
Result<KernelOffer> offer_pooling(const Card& card, const NodeView& node);
Result<KernelOffer> offer_rowwise(const Card& card, const NodeView& node);
Result<KernelOffer> offer_reduce(const Card& card, const NodeView& node);
Result<KernelOffer> offer_reduce_to(const Card& card, const NodeView& node);
Result<KernelOffer> offer_count_not_finite(const Card& card, const NodeView& node);
Result<KernelOffer> offer_loss_scale(const Card& card, const NodeView& node);
Result<KernelOffer> offer_move(const Card& card, const NodeView& node);
Result<KernelOffer> offer_image(const Card& card, const NodeView& node);
Result<KernelOffer> offer_resample(const Card& card, const NodeView& node);
Result<KernelOffer> offer_affine_image(const Card& card, const NodeView& node);
Result<KernelOffer> offer_view(const Card& card, const NodeView& node);
Result<KernelOffer> offer_cast(const Card& card, const NodeView& node);
Result<KernelOffer> offer_reorder(const Card& card, const NodeView& node);
Result<KernelOffer> offer_embedding(const Card& card, const NodeView& node);
Result<KernelOffer> offer_row_update(const Card& card, const NodeView& node);
Result<KernelOffer> offer_copy(const Card& card, const NodeView& node);
Result<KernelOffer> offer_batch_matmul(const Card& card, const NodeView& node);
Result<KernelOffer> offer_transpose(const Card& card, const NodeView& node);
Result<KernelOffer> offer_strided_slice(const Card& card, const NodeView& node);
Result<KernelOffer> offer_strided_slice_grad(const Card& card, const NodeView& node);
Result<KernelOffer> offer_pad(const Card& card, const NodeView& node);
Result<KernelOffer> offer_indexed(const Card& card, const NodeView& node);
Result<KernelOffer> offer_extreme(const Card& card, const NodeView& node);
Result<KernelOffer> offer_arg(const Card& card, const NodeView& node);
Result<KernelOffer> offer_cumulate(const Card& card, const NodeView& node);
Result<KernelOffer> offer_sort(const Card& card, const NodeView& node);

BoundKernel bind_convolution(Context& context, const BoundNode& node);
BoundKernel bind_pooled_convolution(Context& context, const BoundNode& node);
BoundKernel bind_matmul(Context& context, const BoundNode& node);
BoundKernel bind_attention(Context& context, const BoundNode& node);
BoundKernel bind_recurrent(Context& context, const BoundNode& node);
BoundKernel bind_fused(Context& context, const BoundNode& node);
BoundKernel bind_pool(Context& context, const BoundNode& node);
BoundKernel bind_global_pool(Context& context, const BoundNode& node);
BoundKernel bind_softmax(Context& context, const BoundNode& node);
BoundKernel bind_layer_norm(Context& context, const BoundNode& node);
BoundKernel bind_cross_entropy(Context& context, const BoundNode& node);
BoundKernel bind_point_loss(Context& context, const BoundNode& node);
BoundKernel bind_match(Context& context, const BoundNode& node);
BoundKernel bind_reduce(Context& context, const BoundNode& node);
BoundKernel bind_reduce_to(Context& context, const BoundNode& node);
BoundKernel bind_count_not_finite(Context& context, const BoundNode& node);
BoundKernel bind_loss_scale(Context& context, const BoundNode& node);
BoundKernel bind_concat(Context& context, const BoundNode& node);
BoundKernel bind_slice(Context& context, const BoundNode& node);
BoundKernel bind_broadcast(Context& context, const BoundNode& node);
BoundKernel bind_fill(Context& context, const BoundNode& node);
BoundKernel bind_constant(Context& context, const BoundNode& node);
BoundKernel bind_shift(Context& context, const BoundNode& node);
BoundKernel bind_upsample(Context& context, const BoundNode& node);
BoundKernel bind_resample(Context& context, const BoundNode& node);
BoundKernel bind_affine_image(Context& context, const BoundNode& node);
BoundKernel bind_copy(Context& context, const BoundNode& node);
BoundKernel bind_cast(Context& context, const BoundNode& node);
BoundKernel bind_reorder(Context& context, const BoundNode& node);
BoundKernel bind_embedding(Context& context, const BoundNode& node);
BoundKernel bind_row_update(Context& context, const BoundNode& node);
BoundKernel bind_host_copy(Context& context, const BoundNode& node);
BoundKernel bind_batch_matmul(Context& context, const BoundNode& node);
BoundKernel bind_transpose(Context& context, const BoundNode& node);
BoundKernel bind_strided_slice(Context& context, const BoundNode& node);
BoundKernel bind_strided_slice_grad(Context& context, const BoundNode& node);
BoundKernel bind_pad(Context& context, const BoundNode& node);
BoundKernel bind_indexed(Context& context, const BoundNode& node);
BoundKernel bind_extreme(Context& context, const BoundNode& node);
BoundKernel bind_arg(Context& context, const BoundNode& node);
BoundKernel bind_cumulate(Context& context, const BoundNode& node);
BoundKernel bind_sort(Context& context, const BoundNode& node);

#ifdef PLIMSOLL_HAS_CUDA
#define PLIMSOLL_KERNEL(offer, bind) \
  { offer, bind }
#else
#define PLIMSOLL_KERNEL(offer, bind) \
  { offer, nullptr }
#endif

namespace {

// The share of the card's copy speed that a kernel over long tensors reaches, and the speed-up for data in the L2
// cache.
constexpr double kPassEfficiency = 0.85;
constexpr double kCacheSpeedup = 1.5;

double memory_seconds(const Card& card, double bytes) {
  const double seconds = bytes / (kPassEfficiency * card.bytes_per_second);
  return bytes < 0.5 * static_cast<double>(card.l2_bytes) ? seconds / kCacheSpeedup : seconds;
}

double matrix_rate(const Card& card, DType dtype) {
  if (dtype == DType::kFloat16 || dtype == DType::kBFloat16) return card.flops_half;
  return card.has_tf32() ? card.flops_tf32 : card.flops_f32;
}

const std::unordered_map<std::string_view, KernelEntry>& kernels() {
  static const std::unordered_map<std::string_view, KernelEntry> kKernels = {
      {"conv2d", PLIMSOLL_KERNEL(offer_convolution, bind_convolution)},
      {"conv2d_input_grad", PLIMSOLL_KERNEL(offer_convolution, bind_convolution)},
      {"conv2d_weight_grad", PLIMSOLL_KERNEL(offer_convolution, bind_convolution)},

      {"conv3d", PLIMSOLL_KERNEL(offer_convolution, bind_convolution)},
      {"conv3d_input_grad", PLIMSOLL_KERNEL(offer_convolution, bind_convolution)},
      {"conv3d_weight_grad", PLIMSOLL_KERNEL(offer_convolution, bind_convolution)},

      {"conv2d_pooled", PLIMSOLL_KERNEL(offer_pooled_convolution, bind_pooled_convolution)},
      {"conv2d_pooled_weight_grad", PLIMSOLL_KERNEL(offer_pooled_convolution, bind_pooled_convolution)},

      {"matmul", PLIMSOLL_KERNEL(offer_matmul, bind_matmul)},

      {"attention", PLIMSOLL_KERNEL(offer_attention, bind_attention)},
      {"attention_grad", PLIMSOLL_KERNEL(offer_attention, bind_attention)},

      {"recurrent", PLIMSOLL_KERNEL(offer_recurrent, bind_recurrent)},
      {"recurrent_grad", PLIMSOLL_KERNEL(offer_recurrent, bind_recurrent)},

      {"fused", PLIMSOLL_KERNEL(offer_fused, bind_fused)},

      {"max_pool2d", PLIMSOLL_KERNEL(offer_pooling, bind_pool)},
      {"max_pool2d_grad", PLIMSOLL_KERNEL(offer_pooling, bind_pool)},
      {"avg_pool2d", PLIMSOLL_KERNEL(offer_pooling, bind_pool)},
      {"avg_pool2d_grad", PLIMSOLL_KERNEL(offer_pooling, bind_pool)},

      {"max_pool3d", PLIMSOLL_KERNEL(offer_pooling, bind_pool)},
      {"max_pool3d_grad", PLIMSOLL_KERNEL(offer_pooling, bind_pool)},
      {"avg_pool3d", PLIMSOLL_KERNEL(offer_pooling, bind_pool)},
      {"avg_pool3d_grad", PLIMSOLL_KERNEL(offer_pooling, bind_pool)},

      {"global_avg_pool2d", PLIMSOLL_KERNEL(offer_pooling, bind_global_pool)},
      {"global_avg_pool2d_grad", PLIMSOLL_KERNEL(offer_pooling, bind_global_pool)},
      {"global_max_pool2d", PLIMSOLL_KERNEL(offer_pooling, bind_global_pool)},
      {"global_max_pool2d_grad", PLIMSOLL_KERNEL(offer_pooling, bind_global_pool)},

      {"softmax", PLIMSOLL_KERNEL(offer_rowwise, bind_softmax)},
      {"softmax_grad", PLIMSOLL_KERNEL(offer_rowwise, bind_softmax)},

      {"layer_norm", PLIMSOLL_KERNEL(offer_rowwise, bind_layer_norm)},
      {"layer_norm_input_grad", PLIMSOLL_KERNEL(offer_rowwise, bind_layer_norm)},
      {"layer_norm_param_grad", PLIMSOLL_KERNEL(offer_rowwise, bind_layer_norm)},

      {"softmax_cross_entropy", PLIMSOLL_KERNEL(offer_rowwise, bind_cross_entropy)},
      {"softmax_cross_entropy_grad", PLIMSOLL_KERNEL(offer_rowwise, bind_cross_entropy)},
      {"cross_entropy", PLIMSOLL_KERNEL(offer_rowwise, bind_cross_entropy)},
      {"cross_entropy_grad", PLIMSOLL_KERNEL(offer_rowwise, bind_cross_entropy)},

      {"binary_cross_entropy", PLIMSOLL_KERNEL(offer_rowwise, bind_point_loss)},
      {"binary_cross_entropy_grad", PLIMSOLL_KERNEL(offer_rowwise, bind_point_loss)},
      {"squared_error", PLIMSOLL_KERNEL(offer_rowwise, bind_point_loss)},
      {"squared_error_grad", PLIMSOLL_KERNEL(offer_rowwise, bind_point_loss)},
      {"absolute_error", PLIMSOLL_KERNEL(offer_rowwise, bind_point_loss)},
      {"absolute_error_grad", PLIMSOLL_KERNEL(offer_rowwise, bind_point_loss)},

      {"match", PLIMSOLL_KERNEL(offer_rowwise, bind_match)},

      {"weighted_sum", PLIMSOLL_KERNEL(offer_reduce, bind_reduce)},
      {"weighted_sum_grad", PLIMSOLL_KERNEL(offer_reduce, bind_reduce)},
      {"l1_l2_penalty", PLIMSOLL_KERNEL(offer_reduce, bind_reduce)},
      {"squared_norm", PLIMSOLL_KERNEL(offer_reduce, bind_reduce)},
      {"clip_factor", PLIMSOLL_KERNEL(offer_reduce, bind_reduce)},
      {"reduce_to", PLIMSOLL_KERNEL(offer_reduce_to, bind_reduce_to)},

      {"count_not_finite", PLIMSOLL_KERNEL(offer_count_not_finite, bind_count_not_finite)},
      {"loss_scale", PLIMSOLL_KERNEL(offer_loss_scale, bind_loss_scale)},
      {"applied_updates", PLIMSOLL_KERNEL(offer_loss_scale, bind_loss_scale)},
      {"count_periods", PLIMSOLL_KERNEL(offer_loss_scale, bind_loss_scale)},
      {"scheduled_rate", PLIMSOLL_KERNEL(offer_loss_scale, bind_loss_scale)},

      {"concat", PLIMSOLL_KERNEL(offer_move, bind_concat)},
      {"slice", PLIMSOLL_KERNEL(offer_move, bind_slice)},
      {"broadcast", PLIMSOLL_KERNEL(offer_move, bind_broadcast)},
      {"fill", PLIMSOLL_KERNEL(offer_move, bind_fill)},
      {"constant", PLIMSOLL_KERNEL(offer_move, bind_constant)},
      {"pad2d", PLIMSOLL_KERNEL(offer_image, bind_shift)},
      {"crop2d", PLIMSOLL_KERNEL(offer_image, bind_shift)},
      {"upsample2d", PLIMSOLL_KERNEL(offer_image, bind_upsample)},
      {"upsample2d_grad", PLIMSOLL_KERNEL(offer_image, bind_upsample)},
      {"resample", PLIMSOLL_KERNEL(offer_resample, bind_resample)},
      {"resample_grad", PLIMSOLL_KERNEL(offer_resample, bind_resample)},
      {"adaptive_max_pool", PLIMSOLL_KERNEL(offer_resample, bind_resample)},
      {"adaptive_max_pool_grad", PLIMSOLL_KERNEL(offer_resample, bind_resample)},
      {"affine_image", PLIMSOLL_KERNEL(offer_affine_image, bind_affine_image)},
      {"affine_image_grad", PLIMSOLL_KERNEL(offer_affine_image, bind_affine_image)},
      {"reshape", PLIMSOLL_KERNEL(offer_view, bind_copy)},
      {"cast", PLIMSOLL_KERNEL(offer_cast, bind_cast)},
      {"reorder", PLIMSOLL_KERNEL(offer_reorder, bind_reorder)},

      {"embedding", PLIMSOLL_KERNEL(offer_embedding, bind_embedding)},
      {"embedding_grad", PLIMSOLL_KERNEL(offer_embedding, bind_embedding)},
      {"sgd_rows", PLIMSOLL_KERNEL(offer_row_update, bind_row_update)},
      {"adam_rows", PLIMSOLL_KERNEL(offer_row_update, bind_row_update)},

      {"batch_matmul", PLIMSOLL_KERNEL(offer_batch_matmul, bind_batch_matmul)},
      {"transpose", PLIMSOLL_KERNEL(offer_transpose, bind_transpose)},
      {"strided_slice", PLIMSOLL_KERNEL(offer_strided_slice, bind_strided_slice)},
      {"strided_slice_grad", PLIMSOLL_KERNEL(offer_strided_slice_grad, bind_strided_slice_grad)},
      {"pad", PLIMSOLL_KERNEL(offer_pad, bind_pad)},
      {"pad_grad", PLIMSOLL_KERNEL(offer_pad, bind_pad)},
      {"gather", PLIMSOLL_KERNEL(offer_indexed, bind_indexed)},
      {"scatter_add", PLIMSOLL_KERNEL(offer_indexed, bind_indexed)},
      {"take_along", PLIMSOLL_KERNEL(offer_indexed, bind_indexed)},
      {"take_along_grad", PLIMSOLL_KERNEL(offer_indexed, bind_indexed)},
      {"iota", PLIMSOLL_KERNEL(offer_indexed, bind_indexed)},
      {"one_hot", PLIMSOLL_KERNEL(offer_indexed, bind_indexed)},
      {"reduce_max", PLIMSOLL_KERNEL(offer_extreme, bind_extreme)},
      {"reduce_min", PLIMSOLL_KERNEL(offer_extreme, bind_extreme)},
      {"reduce_prod", PLIMSOLL_KERNEL(offer_extreme, bind_extreme)},
      {"arg_max", PLIMSOLL_KERNEL(offer_arg, bind_arg)},
      {"arg_min", PLIMSOLL_KERNEL(offer_arg, bind_arg)},
      {"cumsum", PLIMSOLL_KERNEL(offer_cumulate, bind_cumulate)},
      {"cumprod", PLIMSOLL_KERNEL(offer_cumulate, bind_cumulate)},
      {"sort", PLIMSOLL_KERNEL(offer_sort, bind_sort)},
      {"top_k", PLIMSOLL_KERNEL(offer_sort, bind_sort)},

      {"to_host", PLIMSOLL_KERNEL(offer_copy, bind_host_copy)},
      {"to_host_done", PLIMSOLL_KERNEL(offer_copy, bind_host_copy)},
      {"to_device", PLIMSOLL_KERNEL(offer_copy, bind_host_copy)},
      {"to_device_done", PLIMSOLL_KERNEL(offer_copy, bind_host_copy)},
  };
  return kKernels;
}

}  // namespace

double pass_seconds(const Card& card, double bytes) {
  return memory_seconds(card, bytes) + kLaunchSeconds;
}

double matrix_seconds(const Card& card, DType dtype, double flops, double bytes, double efficiency) {
  return std::max(flops / (efficiency * matrix_rate(card, dtype)), memory_seconds(card, bytes)) + kLaunchSeconds;
}

const KernelEntry* kernel_of(const std::string& op) {
  auto found = kernels().find(op);
  if (found == kernels().end() && fused_form(op) != nullptr) found = kernels().find("fused");
  return found == kernels().end() ? nullptr : &found->second;
}

}  // namespace plimsoll::engine::cuda
