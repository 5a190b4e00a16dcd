// The recompute lever (gradient checkpointing): values of the forward pass are dropped and computed again where they
// are read next. The results are identical bit for bit: the same kernels run on the same inputs.
//
// It works on the lowered graph in execution order, like offload. There the bytes and seconds of every node are known,
// so the choice is priced with the plan's own numbers. A value that is only read by element-wise nodes is computed
// again inside their kernels.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "plan/offload.h"
#include "plan/recompute_units.h"

namespace plimsoll::engine {

inline constexpr std::string_view kRecompute = "recompute";
// Percent of the largest live set of training that is not kept: 1 to 99.
extern const std::span<const int64_t> kRecomputePercents;

// One path of choices, from keeping everything on, along which the live set shrinks by a percent per step. It depends
// on the phase and the device alone, not on a budget.
//
// Where no choice reaches a cap, the path goes on with the graph of its last choice. There the recomputed values are
// values like all others, so they may be dropped again between two readers and recomputed from recomputed values.
class RecomputePath {
 public:
  RecomputePath(const LoweredGraph& ordered, const Device& device);
  RecomputePath(RecomputePath&&) noexcept;
  ~RecomputePath();

  // Goes on to a choice that keeps at most about `cap` bytes of transient values live. Caps must decrease from call to
  // call. Returns false if no choice on the path does.
  bool reach(Bytes cap);

  // The present choice, in few bytes.
  struct Mark {
    size_t level = 0;
    std::vector<bool> dropped;
  };
  Mark mark() const;
  double seconds() const;  // of all nodes
  Bytes live() const;      // about the largest live set
  // A phase with a choice that the path has reached, and how many values it recomputes.
  RewrittenPhase graph_of(const Mark& mark) const;

 private:
  struct Level;
  bool go_deeper(Bytes cap);

  const Device& device_;
  std::vector<std::unique_ptr<Level>> levels_;
  bool at_its_end_ = false;
  int steps_ = 0;
};

// Returns a lower bound on the seconds that recompute adds to the phase if at most `cap` bytes of transient values are
// to be live: no choice of values takes less in this order, with these kernels. Below 0 if recomputing can save time.
// Returns none if no choice reaches the cap.
std::optional<double> least_recompute_seconds(const RecomputeUnits& units, Bytes cap);

// Returns a lower bound on the largest live set, whatever is recomputed.
Bytes least_live_bytes(const RecomputeUnits& units);

// Recomputes values until at most 100 - `percent` percent of `most_live` is live. Returns none if that cannot be
// reached.
std::optional<RewrittenPhase> recompute_percent(const OrderedPhase& phase, const Device& device, int64_t percent);

}  // namespace plimsoll::engine
