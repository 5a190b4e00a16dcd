// Which values share a buffer, and how long each buffer lives, for a graph whose nodes run in program order.
//
// Views lie in what they view; an update lies in its persistent value; an output lies over an input that dies there,
// where the op allows it.
#pragma once

#include "lower/lower.h"
#include "plan/pack.h"

namespace plimsoll::engine {

struct Storage {
  Bytes bytes = 0;
  int first = 0, last = 0;     // nodes
  ValueId persistent = kNone;  // lies in this persistent value, not among the transients
  Space space = Space::kDevice;
  std::vector<ValueId> values;
};

struct StorageMap {
  std::vector<Storage> storages;
  std::vector<int> of_value;  // one a value; kNone for a value nobody reads or writes
};

StorageMap assign_storage(const LoweredGraph& lowered);

// The memories that storages lie in, by number; the device's first, whether anything lies there or not.
std::vector<Space> spaces_of(const StorageMap& map);

// What lies in one memory as packing sees it. Items 0..k-1 are its transient storages in order; then, in the device's,
// one item for each node with a workspace, in order.
std::vector<PackItem> pack_items(const LoweredGraph& lowered, const StorageMap& map, Space space = Space::kDevice);

// Pairs (input, output) of a node that may lie over each other.
std::vector<std::pair<size_t, size_t>> in_place_pairs(const Graph& graph, const Node& node);

}  // namespace plimsoll::engine
