// A oneDNN primitive bound to addresses.
#pragma once

#include <dnnl.hpp>
#include <string_view>
#include <vector>

#include "backends/cpu/recipe.h"

namespace plimsoll::engine::cpu {

struct PrimitiveArgument {
  int index;  // DNNL_ARG_...
  dnnl::memory::desc desc;
  void* data;
};

// Builds the argument list once; run() calls the C function, which unlike the C++ one copies no map.
Result<std::unique_ptr<Kernel>> bind_primitive(const Machine& machine, const dnnl::primitive_desc_base& desc,
                                               std::vector<PrimitiveArgument> arguments, const BoundNode& node);

// Reference kernels take seconds where others take milliseconds; those on oneDNN's gemm allocate up to 7 MB while they
// run.
bool acceptable_implementation(std::string_view name);

dnnl::primitive_attr scratchpad_attributes();  // the plan grants the scratchpad

// The first implementation that is acceptable, or, once bound, the one that was offered. False when none is left.
template <typename Desc>
bool pick_implementation(const Problem& p, Desc& desc) {
  do {
    const std::string_view name = desc.impl_info_str();
    if (p.bound ? p.kernel == name : acceptable_implementation(name)) return true;
  } while (desc.next_impl());
  return false;
}

}  // namespace plimsoll::engine::cpu
