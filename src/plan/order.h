// Chooses the order in which nodes run. Its largest live set is never above that of program order.
#pragma once

#include "lower/lower.h"

namespace plimsoll::engine {

// Returns the graph in the best of three orders, the one with the smallest peak live set: program order; program order
// with memory-freeing nodes as early as possible; and a greedy order that always runs the ready node that adds the
// fewest bytes. Of orders with the same peak, the one with the smallest sum of live sets over all nodes.
LoweredGraph reorder_for_memory(LoweredGraph lowered);

Bytes live_set_of(const LoweredGraph& lowered);

}  // namespace plimsoll::engine
