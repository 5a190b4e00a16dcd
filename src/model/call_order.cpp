// The order in which Keras runs the calls of a Functional model: by decreasing depth, where the depth is the longest
// way to an output (keras/src/ops/function.py, map_graph). Most models do not depend on it. It decides what a layer
// sees of masks that another layer removes (Layer::unmasks).
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "model/tree.h"

namespace plimsoll::engine {
namespace {

using NodeKey = std::pair<size_t, size_t>;  // child, and number of its call

class Depths {
 public:
  explicit Depths(const ModelTree& tree) : tree_(tree) {
    std::vector<size_t> calls_of(tree.children.size(), 0);
    for (size_t i = 0; i < tree.calls.size(); ++i) {
      const size_t child = tree.calls[i].child;
      call_at_[{child, calls_of[child]++}] = i;
    }
    for (const TensorRef& output : tree.outputs) visit({output.child, output.node});
  }

  // Returns the calls that an output depends on, in Keras's order.
  std::vector<size_t> order() {
    std::map<size_t, size_t> of_layer;
    for (size_t i = finished_.size(); i-- > 0;) {
      const NodeKey node = finished_[i];
      // All calls of a layer count as the deepest one seen so far.
      const size_t depth = std::max(at_least(node, 0), of_layer[node.first]);
      of_layer[node.first] = depths_[node] = depth;
      for (const NodeKey& parent : parents(node)) at_least(parent, depth + 1);
    }
    std::stable_sort(seen_.begin(), seen_.end(),
                     [&](const NodeKey& a, const NodeKey& b) { return depths_[a] > depths_[b]; });
    std::vector<size_t> calls;
    for (const NodeKey& node : seen_)
      if (const auto call = call_at_.find(node); call != call_at_.end()) calls.push_back(call->second);
    return calls;
  }

 private:
  std::vector<NodeKey> parents(const NodeKey& node) const {
    std::vector<NodeKey> list;
    const auto call = call_at_.find(node);
    if (call == call_at_.end()) return list;  // an input
    for (const TensorRef& ref : tree_.calls[call->second].inputs) list.emplace_back(ref.child, ref.node);
    for (const auto& mask : tree_.calls[call->second].masks)
      if (mask) list.emplace_back(mask->child, mask->node);
    return list;
  }

  // Depth first, each node after those that it reads. A file may hold long chains, so this does not recurse.
  void visit(const NodeKey& root) {
    std::vector<std::pair<NodeKey, size_t>> stack;
    if (begun_.insert(root).second) stack.push_back({root, 0});
    while (!stack.empty()) {
      auto& [node, next] = stack.back();
      const std::vector<NodeKey> all = parents(node);
      if (next == all.size()) {
        finished_.push_back(node);
        stack.pop_back();
      } else if (const NodeKey parent = all[next++]; begun_.insert(parent).second) {
        stack.push_back({parent, 0});
      }
    }
  }

  // Raises the depth of a node, and returns it. Keras runs nodes of one depth in the order in which they got one.
  size_t at_least(const NodeKey& node, size_t depth) {
    const auto [found, added] = depths_.try_emplace(node, depth);
    if (added) seen_.push_back(node);
    return found->second = std::max(found->second, depth);
  }

  const ModelTree& tree_;
  std::map<NodeKey, size_t> call_at_, depths_;
  std::set<NodeKey> begun_;
  std::vector<NodeKey> finished_, seen_;
};

}  // namespace

void rank_calls(ModelTree& tree) {
  for (ModelTree::Call& call : tree.calls) call.rank = tree.calls.size();  // calls that no output depends on
  const std::vector<size_t> order = Depths(tree).order();
  for (size_t i = 0; i < order.size(); ++i) tree.calls[order[i]].rank = i;
}

}  // namespace plimsoll::engine
