// One function a file of this folder: the ops it defines. registry.cpp joins them.
#pragma once

#include <vector>

#include "ops/op.h"

namespace plimsoll {

std::vector<OpDef> activation_ops();
std::vector<OpDef> arithmetic_ops();
std::vector<OpDef> attention_ops();
std::vector<OpDef> batch_norm_ops();
std::vector<OpDef> binary_cross_entropy_ops();
std::vector<OpDef> broadcast_ops();
std::vector<OpDef> cast_ops();
std::vector<OpDef> clip_ops();
std::vector<OpDef> concat_ops();
std::vector<OpDef> conv2d_ops();
std::vector<OpDef> cross_entropy_ops();
std::vector<OpDef> dropout_ops();
std::vector<OpDef> embedding_ops();
std::vector<OpDef> fused_ops();
std::vector<OpDef> global_pool2d_ops();
std::vector<OpDef> layer_norm_ops();
std::vector<OpDef> loss_scale_ops();
std::vector<OpDef> match_ops();
std::vector<OpDef> matmul_ops();
std::vector<OpDef> offload_ops();
std::vector<OpDef> optimizer_ops();
std::vector<OpDef> pad2d_ops();
std::vector<OpDef> penalty_ops();
std::vector<OpDef> pool2d_ops();
std::vector<OpDef> pooled_conv2d_ops();
std::vector<OpDef> regression_loss_ops();
std::vector<OpDef> relu_ops();
std::vector<OpDef> reshape_ops();
std::vector<OpDef> row_update_ops();
std::vector<OpDef> softmax_ops();
std::vector<OpDef> upsample2d_ops();
std::vector<OpDef> weighted_sum_ops();

// The end conv2d and matmul share: adds input 2, if there is one, to each row of output 0, then applies `activation`.
void finish_product(const ReferenceCall& call, int64_t rows, int64_t columns);

}  // namespace plimsoll
