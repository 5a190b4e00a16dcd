// Removes transposes before other passes of lowering.
#pragma once

#include "graph/graph.h"

namespace plimsoll::engine {

// Merges chains of transposes and moves transposes through element-wise nodes to meet their inverse.
Graph remove_transposes(Graph graph);

}  // namespace plimsoll::engine
