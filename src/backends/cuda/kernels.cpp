// Which family an op belongs to, and the time a pass over memory or a matrix product takes.
#include "backends/cuda/kernels.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

namespace plimsoll::cuda {

namespace {

// What a pass over long tensors reaches of the card's copy speed, and how much faster it goes in the second-level
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

const std::unordered_map<std::string_view, Rule>& rules() {
  static const std::unordered_map<std::string_view, Rule> table = {
      {"conv2d", convolution_rule},
      {"conv2d_input_grad", convolution_rule},
      {"conv2d_weight_grad", convolution_rule},
      {"conv2d_pooled", pooled_convolution_rule},
      {"conv2d_pooled_weight_grad", pooled_convolution_rule},
      {"matmul", matmul_rule},
      {"attention", attention_rule},
      {"attention_grad", attention_rule},

      {"fused", fused_rule},
      {"bias_add", fused_rule},
      {"add", fused_rule},
      {"multiply", fused_rule},
      {"scale", fused_rule},
      {"affine", fused_rule},
      {"relu", fused_rule},
      {"relu_grad", fused_rule},
      {"sigmoid", fused_rule},
      {"sigmoid_grad", fused_rule},
      {"tanh", fused_rule},
      {"tanh_grad", fused_rule},
      {"elu", fused_rule},
      {"elu_grad", fused_rule},
      {"gelu", fused_rule},
      {"gelu_grad", fused_rule},
      {"silu", fused_rule},
      {"silu_grad", fused_rule},
      {"dropout", fused_rule},
      {"batch_norm_stats", fused_rule},
      {"batch_norm_apply", fused_rule},
      {"batch_norm_grad_stats", fused_rule},
      {"batch_norm_input_grad", fused_rule},
      {"batch_norm_frozen_grad", fused_rule},
      {"moving_average", fused_rule},
      {"sgd", fused_rule},
      {"adam", fused_rule},
      {"clip_value", fused_rule},
      {"l1_l2_grad", fused_rule},
      {"unscale", fused_rule},
      {"keep_if", fused_rule},

      {"max_pool2d", pooling_rule},
      {"max_pool2d_grad", pooling_rule},
      {"avg_pool2d", pooling_rule},
      {"avg_pool2d_grad", pooling_rule},
      {"global_avg_pool2d", pooling_rule},
      {"global_avg_pool2d_grad", pooling_rule},
      {"global_max_pool2d", pooling_rule},
      {"global_max_pool2d_grad", pooling_rule},

      {"softmax", rowwise_rule},
      {"softmax_grad", rowwise_rule},
      {"layer_norm", rowwise_rule},
      {"layer_norm_input_grad", rowwise_rule},
      {"layer_norm_param_grad", rowwise_rule},
      {"softmax_cross_entropy", rowwise_rule},
      {"softmax_cross_entropy_grad", rowwise_rule},
      {"cross_entropy", rowwise_rule},
      {"cross_entropy_grad", rowwise_rule},
      {"binary_cross_entropy", rowwise_rule},
      {"binary_cross_entropy_grad", rowwise_rule},
      {"squared_error", rowwise_rule},
      {"squared_error_grad", rowwise_rule},
      {"absolute_error", rowwise_rule},
      {"absolute_error_grad", rowwise_rule},
      {"match", rowwise_rule},

      {"weighted_sum", reduce_rule},
      {"weighted_sum_grad", reduce_rule},
      {"l1_l2_penalty", reduce_rule},
      {"squared_norm", reduce_rule},
      {"clip_factor", reduce_rule},
      {"reduce_to", reduce_rule},

      {"count_not_finite", loss_scale_rule},
      {"loss_scale", loss_scale_rule},
      {"applied_updates", loss_scale_rule},
      {"scheduled_rate", loss_scale_rule},

      {"concat", move_rule},
      {"slice", move_rule},
      {"broadcast", move_rule},
      {"pad2d", move_rule},
      {"crop2d", move_rule},
      {"upsample2d", move_rule},
      {"upsample2d_grad", move_rule},
      {"fill", move_rule},
      {"reshape", move_rule},
      {"cast", move_rule},
      {"reorder", move_rule},

      {"embedding", embedding_rule},
      {"embedding_grad", embedding_rule},
      {"sgd_rows", embedding_rule},
      {"adam_rows", embedding_rule},

      {"to_host", copy_rule},
      {"to_host_done", copy_rule},
      {"to_device", copy_rule},
      {"to_device_done", copy_rule},
  };
  return table;
}

}  // namespace

double NodeView::traffic() const {
  double bytes = 0;
  for (ValueId id : node.inputs) bytes += static_cast<double>(graph.value(id).bytes());
  for (ValueId id : node.outputs) bytes += static_cast<double>(graph.value(id).bytes());
  return bytes;
}

double pass_seconds(const Card& card, double bytes) {
  return memory_seconds(card, bytes) + kLaunchSeconds;
}

double matrix_seconds(const Card& card, DType dtype, double flops, double bytes, double efficiency) {
  return std::max(flops / (efficiency * matrix_rate(card, dtype)), memory_seconds(card, bytes)) + kLaunchSeconds;
}

Rule rule_for(const std::string& op) {
  const auto found = rules().find(op);
  return found == rules().end() ? nullptr : found->second;
}

}  // namespace plimsoll::cuda
