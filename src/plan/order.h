// The order nodes run in: never one whose live set is above that of program order.
#pragma once

#include "lower/lower.h"

namespace plimsoll::engine {

// The same graph with its nodes in the order with the smallest largest live set among program order, program order with
// memory-freeing nodes as early as they can run, and a greedy order that always runs the ready node that adds least.
LoweredGraph reorder_for_memory(LoweredGraph lowered);

Bytes live_set_of(const LoweredGraph& lowered);

}  // namespace plimsoll::engine
