#pragma once

#include <vector>

#include "graph/graph.h"

namespace plimsoll::engine {

// Which views of a value must be made again when the value gets another place.
class ViewsOf {
 public:
  explicit ViewsOf(const Graph& graph);

  // Returns the nodes before `before`, in order, whose views of `value` are read at `before` or later, also by views.
  std::vector<NodeId> read_from(ValueId value, NodeId before) const;

 private:
  const Graph& graph_;
  std::vector<std::vector<NodeId>> views_;  // per viewed value, in order; views of views included
  std::vector<NodeId> last_reader_;         // per value
};

}  // namespace plimsoll::engine
