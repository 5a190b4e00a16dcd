#include "backends/cpu/onednn/primitive.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

namespace plimsoll::engine::cpu {

namespace {

class PrimitiveKernel final : public Kernel {
 public:
  PrimitiveKernel(const Machine& machine, std::shared_ptr<const dnnl::primitive> primitive,
                  const std::vector<PrimitiveArgument>& arguments)
      : machine_(machine), primitive_(std::move(primitive)) {
    arguments_.reserve(arguments.size());
    memories_.reserve(arguments.size());
    for (const auto& argument : arguments) {
      memories_.emplace_back(argument.desc, machine.engine, argument.data);
      arguments_.push_back({argument.index, memories_.back().get()});
    }
  }

  void run() override {
    use_threads(machine_);
    const dnnl_status_t status = dnnl_primitive_execute(primitive_->get(), machine_.stream.get(),
                                                        static_cast<int>(arguments_.size()), arguments_.data());
    assert(status == dnnl_success);
    (void)status;
  }

 private:
  const Machine& machine_;
  std::shared_ptr<const dnnl::primitive> primitive_;
  std::vector<dnnl::memory> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;
};

}  // namespace

std::shared_ptr<const dnnl::primitive> PrimitiveCache::get(const std::string& key,
                                                           const dnnl::primitive_desc_base& desc) {
  const std::lock_guard lock(mutex_);
  if (const auto found = primitives_.find(key); found != primitives_.end())
    if (auto primitive = found->second.lock()) return primitive;
  std::erase_if(primitives_, [](const auto& entry) { return entry.second.expired(); });
  auto primitive = std::make_shared<const dnnl::primitive>(desc.get());
  primitives_[key] = primitive;
  return primitive;
}

size_t PrimitiveCache::size() const {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(
      std::count_if(primitives_.begin(), primitives_.end(), [](const auto& entry) { return !entry.second.expired(); }));
}

std::string primitive_key(const Graph& graph, const Node& node, std::string_view kernel) {
  return fmt::format("{}|{}", kernel, key_of(graph, node));
}

bool acceptable_implementation(std::string_view name) {
  return name.find("ref") == std::string_view::npos && name.find("gemm:") == std::string_view::npos;
}

dnnl::primitive_attr scratchpad_attributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

Result<std::unique_ptr<Kernel>> bind_primitive(const Machine& machine, const dnnl::primitive_desc_base& desc,
                                               std::vector<PrimitiveArgument> arguments, const BoundNode& node) {
  const auto scratchpad = desc.query_md(dnnl::query::scratchpad_md);
  const auto needed = static_cast<Bytes>(scratchpad.get_size());
  if (needed > node.workspace_bytes) {
    return fail(ErrorCode::kBadPlan, fmt::format("{} needs a workspace of {} bytes but the plan provides {}",
                                                 node.kernel, needed, node.workspace_bytes));
  }
  if (needed > 0) arguments.push_back({DNNL_ARG_SCRATCHPAD, scratchpad, node.workspace});
  try {
    auto primitive = machine.primitives->get(primitive_key(node.graph, node.node, node.kernel), desc);
    return std::make_unique<PrimitiveKernel>(machine, std::move(primitive), arguments);
  } catch (const dnnl::error& error) {
    return fail(ErrorCode::kInternal, fmt::format("oneDNN could not create {}: {}", node.kernel, error.what()));
  }
}

}  // namespace plimsoll::engine::cpu
