// Helpers that every backend uses to read a node when it offers or binds a kernel.
#pragma once

#include <string>

#include "device/kernel.h"

namespace plimsoll::engine {

// A node with shortcuts to its values.
struct NodeView {
  const Graph& graph;
  const Node& node;

  const Value& in(size_t i) const { return graph.value(node.inputs[i]); }
  const Value& out(size_t i) const { return graph.value(node.outputs[i]); }
  const Shape& in_shape(size_t i) const { return in(i).type.shape; }
  const Shape& out_shape(size_t i) const { return out(i).type.shape; }
  DType in_dtype(size_t i) const { return in(i).type.dtype; }
  DType out_dtype(size_t i) const { return out(i).type.dtype; }
  size_t inputs() const { return node.inputs.size(); }
  size_t outputs() const { return node.outputs.size(); }
  const Attrs& attrs() const { return node.attrs; }
  // Bytes of all inputs and outputs, i.e. the memory traffic of a kernel that touches each once.
  double traffic() const {
    double bytes = 0;
    for (ValueId id : node.inputs) bytes += static_cast<double>(graph.value(id).bytes());
    for (ValueId id : node.outputs) bytes += static_cast<double>(graph.value(id).bytes());
    return bytes;
  }
};

// Typed addresses of a bound node's inputs and outputs.
template <typename T = void>
T* input(const BoundNode& node, size_t i) {
  return static_cast<T*>(node.inputs[i]);
}
template <typename T = void>
T* output(const BoundNode& node, size_t i) {
  return static_cast<T*>(node.outputs[i]);
}

// Refuses a node if one of its values is not row-major, unless `looks_at_layouts` says that its kernels handle layouts,
// or if `wrong_dtype` returns a reason against a dtype ("" means accepted). The messages are concatenated by hand
// because nvcc cannot evaluate fmt's compile-time format checks.
template <typename F>
Status check_values(const NodeView& view, bool looks_at_layouts, F wrong_dtype) {
  for (const auto* list : {&view.node.inputs, &view.node.outputs})
    for (ValueId id : *list) {
      const Value& value = view.graph.value(id);
      if (!looks_at_layouts && !value.layout.empty())
        return fail(ErrorCode::kUnsupported, view.node.op + ": '" + value.name + "' is not row-major");
      if (const std::string why = wrong_dtype(value.type.dtype); !why.empty())
        return fail(ErrorCode::kUnsupported,
                    view.node.op + ": '" + value.name + "' is " + std::string(name_of(value.type.dtype)) + "; " + why);
    }
  return {};
}

}  // namespace plimsoll::engine
