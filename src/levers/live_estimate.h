// Estimates the live bytes at each node for a choice of saved activations to recompute, without rewriting or lowering
// the graph. It is accurate enough to rank choices. lower/ and plan/ compute the real bytes of a choice.
#pragma once

#include "device/device.h"
#include "levers/recompute.h"

namespace plimsoll::engine {

// A value that cheap_choice keeps for the backward pass.
struct SavedActivation {
  ValueId value = kNone;
  Bytes bytes = 0;
  int made = 0, forward_last = 0;  // node that produces it, and the last forward node that reads it
  int first = 0, last = 0;         // first and last backward node that reads it or a cheap clone computed from it
  bool can_be_recomputed = false;
  std::vector<NodeId> clones;  // nodes that recompute it
  double seconds = 0;          // run time of the clones
  Bytes scratch = 0;           // bytes that its producer reads and that are neither saved nor persistent
  std::vector<int> sources;    // saved activations that the clones read
};

class LiveEstimate {
 public:
  LiveEstimate(const Graph& graph, const RecomputeChoice& cheap, const Device& device);

  const std::vector<SavedActivation>& saved() const { return saved_; }

  // For a choice `recomputed` (one flag per saved activation): the transient bytes at each node, and the largest of
  // them. live_choice.h follows a choice that changes.
  std::vector<Bytes> live(const std::vector<bool>& recomputed) const;
  Bytes peak(const std::vector<bool>& recomputed) const;

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
  std::vector<std::vector<NodeId>> readers_;  // a reader of a view counts as a reader of the viewed value
  std::vector<SavedActivation> saved_;        // in program order
  std::vector<int> saved_of_;                 // one per value
  std::vector<Bytes> base_;                   // one per node: change of the live bytes that are not saved activations
};

}  // namespace plimsoll::engine
