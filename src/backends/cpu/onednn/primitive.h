// A oneDNN primitive bound to addresses.
#pragma once

#include <dnnl.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cpu/recipe.h"

namespace plimsoll::engine::cpu {

struct PrimitiveArgument {
  int index;  // DNNL_ARG_...
  dnnl::memory::desc desc;
  void* data;
};

// The primitives in use. Nodes with the same key share one primitive, because a primitive takes 30 to 100 KiB. A
// primitive has no state while it runs: its scratch memory and all other memory are arguments of the call, so several
// nodes and threads may use it. It lives as long as a kernel that uses it.
class PrimitiveCache {
 public:
  // Creates the primitive if there is none. Throws dnnl::error.
  std::shared_ptr<const dnnl::primitive> get(const std::string& key, const dnnl::primitive_desc_base& desc);
  size_t size() const;  // primitives that are alive

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::weak_ptr<const dnnl::primitive>> primitives_;
};

// Key of a node's primitive: all that its descriptor and attributes are made from.
std::string primitive_key(const Graph& graph, const Node& node, std::string_view kernel);

// Builds the argument list once. run() then calls oneDNN's C function, because the C++ one copies a map on every call.
Result<std::unique_ptr<Kernel>> bind_primitive(const Machine& machine, const dnnl::primitive_desc_base& desc,
                                               std::vector<PrimitiveArgument> arguments, const BoundNode& node);

// Rejects oneDNN's reference kernels, which take seconds where others take milliseconds, and its gemm-based kernels,
// which allocate up to 7 MB while they run.
bool acceptable_implementation(std::string_view name);

dnnl::primitive_attr scratchpad_attributes();  // user scratchpad mode: the plan provides the scratchpad

// Moves `desc` to the first acceptable implementation, or, if the node is bound, to the one that was offered. Returns
// false if there is none.
template <typename Desc>
bool pick_implementation(const Problem& p, Desc& desc) {
  do {
    const std::string_view name = desc.impl_info_str();
    if (p.bound ? p.kernel == name : acceptable_implementation(name)) return true;
  } while (desc.next_impl());
  return false;
}

}  // namespace plimsoll::engine::cpu
