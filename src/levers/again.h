// Which forward values the backward pass reads, which of them it makes again, and the rewrite that does so.
#pragma once

#include "levers/lever.h"

namespace plimsoll {

bool is_backward(const Graph& graph, const Node& node);

// One flag a value, except `once`: one a node.
struct AgainChoice {
  std::vector<bool> read;   // forward values and inputs of the graph that backward nodes read
  std::vector<bool> again;  // of these, the ones to be made again: everything else that is read is kept
  std::vector<bool> once;   // nodes whose clone serves all readers; the others are cloned for each, and fuse into it

  // Whether the backward pass can read it without making it again.
  bool available(const Graph& graph, ValueId id) const {
    const auto v = static_cast<size_t>(id);
    return graph.values[v].producer == kNone || (read[v] && !again[v]);
  }
};

// The choice of recompute_cheap: chains of a few cheap nodes that end in what is kept anyway.
AgainChoice cheap_choice(const Graph& graph);

// Backward nodes read clones of what `choice` makes again, placed before the first reader that wants them.
Rewritten make_again(const Graph& graph, const AgainChoice& choice);

}  // namespace plimsoll
