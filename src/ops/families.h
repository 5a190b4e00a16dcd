// One function per file of this folder. Each returns the ops that the file defines.
#pragma once

#include <vector>

#include "ops/op.h"

namespace plimsoll::engine {

// The list of the files that define ops. Each file has one function X() that returns its ops. registry.cpp keeps this
// order and adds recurrent.h's. (Without these switches, clang-format would lay out the list differently on each run.)
// clang-format off
#define PLIMSOLL_OP_FAMILIES(X) \
  X(conv3d_ops) X(resample_ops) X(affine_image_ops) \
  X(conv2d_ops) X(pooled_conv2d_ops) X(matmul_ops) X(arithmetic_ops) X(cast_ops) X(relu_ops) X(activation_ops) \
  X(unary_ops) X(binary_ops) X(constant_ops) X(random_ops) \
  X(dropout_ops) X(batch_norm_ops) X(layer_norm_ops) X(softmax_ops) X(attention_ops) X(embedding_ops) \
  X(pool2d_ops) X(pool3d_ops) X(global_pool2d_ops) X(upsample2d_ops) X(pad2d_ops) X(reshape_ops) X(concat_ops) \
  X(broadcast_ops) X(cross_entropy_ops) X(binary_cross_entropy_ops) X(regression_loss_ops) X(match_ops) \
  X(weighted_sum_ops) X(penalty_ops) X(optimizer_ops) X(row_update_ops) X(clip_ops) X(loss_scale_ops) \
  X(transpose_ops) X(strided_slice_ops) X(pad_ops) X(reduce_ops) X(batch_matmul_ops) X(gather_ops) X(index_ops) \
  X(cumulative_ops) X(sort_ops) X(ctc_ops) \
  X(offload_ops) X(fused_ops)
// clang-format on

#define X(family) std::vector<OpDef> family();
PLIMSOLL_OP_FAMILIES(X)
#undef X

// The last steps of conv2d and matmul: adds input 2, if there is one, to each row of output 0, then applies
// `activation`.
void finish_product(const ReferenceCall& call, int64_t rows, int64_t columns);

}  // namespace plimsoll::engine
