// The body of each instruction set's .cpp: everything below lies in that set's own namespace.
namespace {

// The order matters: each file uses functions of the files before it.
// clang-format off
#include "backends/cpu/simd/math.inl"
#include "backends/cpu/simd/trigonometry.inl"
#include "backends/cpu/simd/half.inl"
#include "backends/cpu/simd/elementwise.inl"
#include "backends/cpu/simd/optimizer.inl"
#include "backends/cpu/simd/random.inl"
#include "backends/cpu/simd/pooling.inl"
#include "backends/cpu/simd/gemm.inl"
#include "backends/cpu/simd/rate.inl"
#include "backends/cpu/simd/outer.inl"
#include "backends/cpu/simd/recurrent.inl"
#include "backends/cpu/simd/winograd.inl"
#include "backends/cpu/simd/few_channels.inl"
#include "backends/cpu/simd/reduce.inl"
#include "backends/cpu/simd/transpose.inl"
#include "backends/cpu/simd/rows.inl"
#include "backends/cpu/simd/attention.inl"
#include "backends/cpu/simd/loss.inl"
// clang-format on

}  // namespace

extern const Simd kSimd = {
    .name = PLIMSOLL_SIMD_NAME,
    .tile =
        {
#define UNARY(name, ...) tile_##name,
#define BINARY(name, ...) tile_##name,
#define TERNARY(name, ...) tile_##name,
#define INSTRUCTION(name) tile_##name,
#include "backends/cpu/fused/ops.inl"
        },
    .widen_bf16 = widen_bf16,
    .widen_f16 = widen_f16,
    .narrow_bf16 = narrow_bf16,
    .narrow_f16 = narrow_f16,
    .multiply_adds = multiply_adds,
    .gemm_mr = kMr,
    .gemm_nr = kNr,
    .gemm_block = gemm_block,
    .winograd_image = winograd_image,
    .winograd_weights = winograd_weights,
    .winograd_multiply = winograd_multiply,
    .winograd_result = winograd_result,
    .winograd_result_grad = winograd_result_grad,
    .winograd_accumulate = winograd_accumulate,
    .winograd_weight_grad = winograd_weight_grad,
    .few_channel_weight_grad = few_channel_weight_grad,
    .pointwise_panels = pointwise_panels,
    .pointwise_forward = pointwise_forward,
    .pointwise_weight_grad = pointwise_weight_grad,
    .sequence_weight_grad = sequence_weight_grad,
    .sequence_bias_grad = sequence_bias_grad,
    .max_pool = max_pool<uint8_t>,
    .max_pool_wide = max_pool<int32_t>,
    .avg_pool = avg_pool,
    .max_pool_grad = max_pool_grad<uint8_t>,
    .max_pool_grad_wide = max_pool_grad<int32_t>,
    .avg_pool_grad = avg_pool_grad,
    .global_avg_pool = global_avg_pool,
    .global_max_pool = global_max_pool,
    .global_avg_pool_grad = global_avg_pool_grad,
    .global_max_pool_grad = global_max_pool_grad,
    .sum = sum,
    .sum_of_squares = sum_of_squares,
    .sum_of_magnitudes = sum_of_magnitudes,
    .dot = dot,
    .reduce_run = reduce_run,
    .reduce_rows = reduce_rows,
    .arg_extreme = arg_extreme,
    .transpose = transpose,
    .scaled_scores = scaled_scores,
    .score_weights = score_weights,
    .score_gradients = score_gradients,
    .scaled_row = scaled_row,
    .softmax = softmax,
    .softmax_grad = softmax_grad,
    .layer_norm = layer_norm,
    .layer_norm_input_grad = layer_norm_input_grad,
    .layer_norm_param_grad = layer_norm_param_grad,
    .softmax_cross_entropy = softmax_cross_entropy,
    .softmax_cross_entropy_grad = softmax_cross_entropy_grad,
    .cross_entropy = cross_entropy,
    .cross_entropy_grad = cross_entropy_grad,
    .binary_cross_entropy = binary_cross_entropy,
    .binary_cross_entropy_grad = binary_cross_entropy_grad,
    .squared_error = squared_error,
    .squared_error_grad = squared_error_grad,
    .absolute_error = absolute_error,
    .absolute_error_grad = absolute_error_grad,
};

extern const CellSimd kCellSimd = {
    .pack_panels = pack_panels,
    .panel_product = panel_product,
    .cell_values = cell_values,
    .cell_slopes = cell_slopes,
    .lstm_cell = lstm_cell,
    .lstm_cell_grad = lstm_cell_grad,
    .gru_cell = gru_cell,
    .gru_cell_grad = gru_cell_grad,
};
