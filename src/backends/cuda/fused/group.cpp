// Groups (lower/group.cpp): a fused body that consists of equal parts over different tensors; the parts share no
// computed value.
#include <algorithm>
#include <map>
#include <numeric>

#include "backends/cuda/fused/writer.h"

namespace plimsoll::engine::cuda {
namespace {

struct PartNodes {
  std::vector<Node> nodes;
  std::vector<ValueId> inputs, outputs;
};

// Nodes that read each other's results are in one part, also through a node that joins two of them.
std::vector<PartNodes> parts_of(const Graph& body) {
  std::vector<size_t> joined(body.nodes.size());  // per node: an earlier node of its part, or itself
  std::iota(joined.begin(), joined.end(), size_t{0});
  const auto first_of = [&](size_t node) {
    while (joined[node] != node) node = joined[node];
    return node;
  };
  for (size_t n = 0; n < body.nodes.size(); ++n)
    for (const ValueId id : body.nodes[n].inputs) {
      if (body.value(id).producer == kNone) continue;
      const size_t a = first_of(n), b = first_of(static_cast<size_t>(body.value(id).producer));
      joined[std::max(a, b)] = std::min(a, b);
    }
  std::vector<PartNodes> parts;
  std::map<size_t, size_t> part_of;  // the first node of a part -> the part
  std::map<ValueId, size_t> made_in;
  for (size_t n = 0; n < body.nodes.size(); ++n) {
    const auto [found, added] = part_of.emplace(first_of(n), parts.size());
    if (added) parts.emplace_back();
    parts[found->second].nodes.push_back(body.nodes[n]);
    for (ValueId id : body.nodes[n].outputs) made_in[id] = found->second;
  }
  for (PartNodes& part : parts)
    for (const Node& node : part.nodes)
      for (ValueId id : node.inputs)
        if (made_in.count(id) == 0 && std::find(part.inputs.begin(), part.inputs.end(), id) == part.inputs.end())
          part.inputs.push_back(id);
  for (ValueId id : body.outputs) parts[made_in.at(id)].outputs.push_back(id);
  return parts;
}

size_t position(const std::vector<ValueId>& list, ValueId id) {
  return static_cast<size_t>(std::find(list.begin(), list.end(), id) - list.begin());
}

}  // namespace

size_t table_bytes(size_t parts, size_t pointers) {
  return 8 + parts * (4 + 8 + 8 * pointers);
}

Result<FusedKernel> make_group_kernel(const Graph& body, bool with_source) {
  const std::vector<PartNodes> parts = parts_of(body);
  const PartNodes& first = parts.front();
  PLIMSOLL_ASSIGN(FusedKernel pass,
                  FusedWriter(body, first.nodes, first.inputs, first.outputs).run(with_source, parts.size()));
  for (const PartNodes& nodes : parts) {
    FusedKernel::Part part;
    part.elements = body.type(nodes.outputs.front()).shape.elements();
    if (nodes.nodes.size() != first.nodes.size() || nodes.inputs.size() != first.inputs.size() ||
        nodes.outputs.size() != first.outputs.size())
      return fail(ErrorCode::kInternal, "the parts of a group differ");
    for (ValueId id : nodes.inputs) part.inputs.push_back(position(body.inputs, id));
    for (ValueId id : nodes.outputs) part.outputs.push_back(position(body.outputs, id));
    pass.parts.push_back(std::move(part));
  }
  return pass;
}

}  // namespace plimsoll::engine::cuda
