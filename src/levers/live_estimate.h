// What is alive where, for any choice of the kept values to be recomputed, without rewriting or lowering the graph:
// quick enough to try thousands of choices, and near enough to rank them. What a choice really takes is known after
// lower/ and plan/.
#pragma once

#include "device/device.h"
#include "levers/recompute.h"

namespace plimsoll::engine {

// A value that is kept for the backward pass under cheap_choice. It can be recomputed from others.
struct SavedActivation {
  ValueId value = kNone;
  Bytes bytes = 0;
  int made = 0, forward_last = 0;  // node that makes it, and the last forward one that reads it
  int first = 0, last = 0;         // first and last backward node that reads it, or something cheap made of it
  bool can_be_recomputed = false;
  std::vector<NodeId> clones;  // nodes that recompute it
  double seconds = 0;          // of these
  Bytes scratch = 0;           // what its own node reads that is neither saved nor persistent
  std::vector<int> sources;    // saved activations that the clones read
};

class LiveEstimate {
 public:
  LiveEstimate(const Graph& graph, const RecomputeChoice& cheap, const Device& device);

  const std::vector<SavedActivation>& saved() const { return saved_; }

  // Where `recomputed` (one flag per saved activation) says what is recomputed: the largest sum of transient bytes, and
  // the sum over all nodes of what lies above `cap`.
  struct Load {
    Bytes peak = 0;
    double above_cap = 0;
  };
  Load load(const std::vector<bool>& recomputed, Bytes cap) const;

 private:
  struct Chain {
    bool possible = true;
    std::vector<NodeId> nodes;
    std::vector<int> sources;
  };

  void find_saved();
  void add_nodes(NodeId node, Chain& chain, std::vector<bool>& seen) const;
  Chain chain_of(ValueId id) const;
  bool keeps_its_epilogue(ValueId id) const;
  void price(SavedActivation& saved, const Device& device) const;
  void find_backward_readers();
  void fill_base();

  const Graph& graph_;
  const RecomputeChoice& cheap_;
  std::vector<std::vector<NodeId>> readers_;  // reading a view is reading what it views
  std::vector<SavedActivation> saved_;        // in the order they are made
  std::vector<int> saved_of_;                 // one per value
  std::vector<Bytes> base_;                   // one per node: everything alive there that is not saved
  // Of the call of load that runs: kept to allocate once.
  mutable std::vector<Bytes> change_;
  mutable std::vector<int> first_, last_;
};

}  // namespace plimsoll::engine
