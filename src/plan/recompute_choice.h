// The live bytes and the seconds of one choice of dropped values, kept up to date while single choices are flipped.
//
// A recomputed value is live from its first reader behind its wait. If a recomputing node reads another dropped value,
// that one is recomputed at the latest there. These are the segments of Chen et al. (arXiv 1604.06174), whose best
// length is a trade-off; here they appear where they pay off.
#pragma once

#include <algorithm>
#include <span>

#include "plan/recompute_units.h"

namespace plimsoll::engine {

class RecomputeChoice {
 public:
  // Starts with every value kept, except that nothing is kept behind its last use.
  explicit RecomputeChoice(const RecomputeUnits& units);

  // Live bytes above the cap count as too much.
  void set_cap(Bytes cap);

  const std::vector<bool>& dropped() const { return dropped_; }
  // The nodes before which a unit's value is recomputed.
  const std::vector<int>& recomputed_at(size_t unit) const { return at_[unit]; }
  double seconds() const { return seconds_; }
  const std::vector<Bytes>& live() const { return live_; }  // per node
  // The sum over all nodes of the bytes above the cap.
  double above() const { return static_cast<double>(above_); }
  Bytes peak() const { return most_.empty() ? 0 : *std::max_element(most_.begin(), most_.end()); }

  // What flip(unit) would change. Not possible: a recomputing node would run after an update of a weight that it reads.
  struct Effect {
    double above = 0, seconds = 0;
    bool possible = false;
  };
  Effect if_flipped(size_t unit);
  void flip(size_t unit);  // must be possible

 private:
  struct Moved {
    size_t unit;
    std::vector<int> at;
    int last;
    bool until_end;
  };

  void change(size_t unit);
  bool settle(size_t unit);
  void queue_sources(size_t unit, const std::vector<int>& before, const std::vector<int>& now);
  void add_spans(size_t unit, int sign);
  bool is_brief(size_t unit, int node) const;
  bool is_held(size_t unit) const;
  void list(size_t unit, bool enters);
  void touch(size_t unit);
  Bytes beside(int node);
  void settle_sequences();
  void set_alive(int first, int end, Bytes bytes);
  double seconds_of(size_t unit) const;
  Bytes changed_above(bool keep);
  Bytes above_in(size_t first, size_t end, Bytes change) const;
  void change_live(size_t first, size_t end, Bytes change);
  void measure_block(size_t block);

  const RecomputeUnits* all_;
  std::span<const RecomputeUnit> units_;
  std::vector<bool> dropped_;
  std::vector<std::vector<int>> at_;  // per unit: nodes before which it is recomputed
  std::vector<int> last_;             // per unit: the last node that needs the value in this wait
  // Per unit: whether the node last_ needs the value itself, and not only a node that recomputes another value before
  // it.
  std::vector<bool> until_end_;
  std::vector<std::vector<size_t>> here_;  // per node: the units that are recomputed before it, in order
  std::vector<std::vector<size_t>> held_;  // per node: those whose values live until then for here_ alone
  std::vector<Bytes> beside_;              // per node: what these need beyond the node itself; part of live_
  std::vector<Bytes> live_;                // per node
  // Per block of nodes: the largest and the smallest live bytes. Most flips are looked at block by block.
  static constexpr size_t kBlock = 32;
  std::vector<Bytes> most_, least_;
  Bytes cap_ = 0;
  Bytes above_ = 0;
  double seconds_ = 0;
  // Of the flip that is being looked at.
  std::vector<std::pair<int, Bytes>> delta_;    // change of the live bytes from this node on
  std::vector<Moved> moved_;                    // what at_ and last_ were before the flip
  std::vector<size_t> queue_;                   // a heap of units to look at
  std::vector<std::pair<int, Bytes>> touched_;  // nodes whose sequences may change, and their beside_ before
  std::vector<int> place_;                      // per value: its place in the sequence that is looked at, from 1; or 0
  std::vector<size_t> last_reader_;             // per place in that sequence
  std::vector<int> needs_, at_now_;             // scratch
};

}  // namespace plimsoll::engine
