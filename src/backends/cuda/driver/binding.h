// Converts a bound node to the plain arguments of launch functions.
#pragma once

#include <cassert>
#include <cstdint>

#include "backends/cuda/common/element.h"
#include "backends/cuda/driver/context.h"
#include "backends/cuda/kernels.h"
#include "device/kernel.h"

namespace plimsoll::engine::cuda {

inline Element element_of(DType dtype) {
  assert(dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16);
  if (dtype == DType::kFloat16) return Element::kF16;
  return dtype == DType::kBFloat16 ? Element::kBF16 : Element::kF32;
}

inline NodeView view_of(const BoundNode& node) {
  return {node.graph, node.node};
}

}  // namespace plimsoll::engine::cuda
