// A look inside a session: for tests, benchmarks and profiles.
#pragma once

#include "execute/session.h"

namespace plimsoll::engine {

class Probe {
 public:
  explicit Probe(Session& session) : session_(session) {}

  // Writes a pattern everywhere above the persistent values, the guard behind the arena included.
  static constexpr std::byte kPattern{0xA5};
  void fill_pattern();
  // The first byte from `from` on that no longer holds the pattern, or -1.
  Bytes first_changed_byte(Bytes from) const;

  // Called before and after each node that runs from now on, also of phases that were recorded as one. An empty
  // function ends it.
  using Watch = std::function<void(const PhasePlan& phase, size_t node, bool done, std::byte* arena)>;
  void watch(Watch watch);

  // Seconds of each node of a phase of the plan in use, each run `repeats` times in a row. What the arena holds is
  // lost.
  Result<std::vector<double>> measure_nodes(PhaseKind kind, int64_t samples, int repeats);

  // Accumulates the batch that came last once more, which a device with memory of its own still has.
  Status accumulate_again(int64_t count);

 private:
  Session& session_;
};

}  // namespace plimsoll::engine
