// The live bytes of one choice of recomputed activations, kept up to date while single activations are flipped. It
// gives the numbers of LiveEstimate::load(), but looks only at the nodes where a flip changes something.
#pragma once

#include "levers/live_estimate.h"

namespace plimsoll::engine {

class LiveChoice {
 public:
  // Starts with every activation kept.
  LiveChoice(const LiveEstimate& estimate, Bytes cap);

  const std::vector<bool>& recomputed() const { return recomputed_; }
  // The sum over all nodes of the bytes above the cap: now, and if activation `a` were flipped.
  double above() const { return static_cast<double>(above_); }
  double above_if_flipped(size_t a);
  void flip(size_t a);

 private:
  struct Moved {
    size_t activation;
    int first, last;
  };

  void set_alive(int first, int last, Bytes bytes);
  void add_spans(size_t a, int sign);
  void change(size_t a);
  void move_sources(size_t a);
  Bytes changed_above(bool keep);

  const std::vector<SavedActivation>& saved_;
  Bytes cap_;
  std::vector<bool> recomputed_;
  std::vector<std::vector<int>> readers_;  // per activation: those whose clones read it
  std::vector<int> first_, last_;          // per activation: first and last backward node that needs it
  std::vector<Bytes> live_;                // per node
  Bytes above_ = 0;
  // Of the flip that is being looked at.
  std::vector<Bytes> delta_;  // per node: change of the live bytes from here on
  int from_ = 0, to_ = 0;     // nodes whose delta_ may not be 0
  std::vector<Moved> moved_;  // first_ and last_ before the flip
  std::vector<int> queue_;    // a heap of activations to look at
};

}  // namespace plimsoll::engine
