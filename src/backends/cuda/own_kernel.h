// Helpers for the offers of our own kernels: which dtypes they accept, and how they offer or refuse.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "backends/cuda/kernels.h"

namespace plimsoll::engine::cuda {

// The dtypes that our kernels accept for full-size tensors. The arithmetic is float32 for all of them.
inline bool is_compute_dtype(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

inline tl::unexpected<Error> refuse(const NodeView& node, const std::string& reason) {
  return fail(ErrorCode::kUnsupported, fmt::format("{} on a GPU: {}", node.node.op, reason));
}

// Refuses unless input or output `i` has one of the compute dtypes.
inline Status require_compute_input(const NodeView& node, size_t i) {
  if (is_compute_dtype(node.in_dtype(i))) return {};
  return refuse(node, fmt::format("input {} must be f32, f16 or bf16, not {}", i, name_of(node.in_dtype(i))));
}
inline Status require_compute_output(const NodeView& node, size_t i) {
  if (is_compute_dtype(node.out_dtype(i))) return {};
  return refuse(node, fmt::format("output {} must be f32, f16 or bf16, not {}", i, name_of(node.out_dtype(i))));
}
// Statistics, losses, weights and dense targets are float32 whatever the compute dtype.
inline Status require_input(const NodeView& node, size_t i, DType dtype) {
  if (node.in_dtype(i) == dtype) return {};
  return refuse(node, fmt::format("input {} must be {}, not {}", i, name_of(dtype), name_of(node.in_dtype(i))));
}
inline Status require_output(const NodeView& node, size_t i, DType dtype) {
  if (node.out_dtype(i) == dtype) return {};
  return refuse(node, fmt::format("output {} must be {}, not {}", i, name_of(dtype), name_of(node.out_dtype(i))));
}
inline Status require_same_dtype(const NodeView& node, size_t input, size_t output) {
  return require_output(node, output, node.in_dtype(input));
}

inline KernelOffer own_offer(std::string kernel, Bytes workspace, double seconds) {
  KernelOffer offer;
  offer.kernel = std::move(kernel);
  offer.workspace = align_up(workspace);
  offer.seconds = seconds;
  return offer;
}

}  // namespace plimsoll::engine::cuda
