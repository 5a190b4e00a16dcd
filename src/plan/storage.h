// Decides which values share a buffer, and the live range of each buffer, for a graph whose nodes run in program order.
//
// A view shares the buffer of the viewed value. An update is written to the place of its persistent value. An output
// may be written in-place over an input whose last reader is this node, if the op allows it.
#pragma once

#include "lower/lower.h"
#include "plan/pack.h"

namespace plimsoll::engine {

struct Storage {
  Bytes bytes = 0;
  int first = 0, last = 0;     // live range: first and last node
  ValueId persistent = kNone;  // the persistent value whose place it uses; kNone for transient values
  Space space = Space::kDevice;
  std::vector<ValueId> values;
};

struct StorageMap {
  std::vector<Storage> storages;
  std::vector<int> of_value;  // one per value; kNone for a value that no node reads or writes
};

StorageMap assign_storage(const LoweredGraph& lowered);

// Returns the memories that the storages use, sorted by number. The device's memory comes first, even if it is unused.
std::vector<Space> spaces_of(const StorageMap& map);

// Returns the items to pack in one memory. Items 0..k-1 are its transient storages, in order. For the device's memory
// one item per node with a workspace follows, in order.
std::vector<PackItem> pack_items(const LoweredGraph& lowered, const StorageMap& map, Space space = Space::kDevice);

// Returns the pairs (input, output) of a node for which the output may be written in-place over the input.
std::vector<std::pair<size_t, size_t>> in_place_pairs(const Graph& graph, const Node& node);

}  // namespace plimsoll::engine
