// Looks inside a session, for tests, benchmarks and profiles.
#pragma once

#include "execute/session.h"

namespace plimsoll::engine {

class Probe {
 public:
  explicit Probe(Session& session) : session_(session) {}

  // Fills everything above the persistent values with a pattern, including the guard after the arena.
  static constexpr std::byte kPattern{0xA5};
  void fill_pattern();
  // Returns the first byte at or after `from` that no longer has the pattern, or -1.
  Bytes first_changed_byte(Bytes from) const;

  // Calls `watch` before and after each node that runs from now on, also in recorded phases. On a device with a queue,
  // it waits for each node, so that a clock in `watch` measures the node and the wait for it. An empty function ends
  // this.
  using Watch = std::function<void(const PhasePlan& phase, size_t node, bool done, std::byte* arena)>;
  void watch(Watch watch);

  // Returns the seconds of each node of a phase of the plan in use. Each node runs `repeats` times in a row. Overwrites
  // the arena.
  Result<std::vector<double>> measure_nodes(PhaseKind kind, int64_t samples, int repeats);

  // Accumulates the last batch once more. Only for devices with their own memory, which still have it.
  Status accumulate_again(int64_t count);

 private:
  Session& session_;
};

}  // namespace plimsoll::engine
