// What levers have in common: what one does to the training, and what one did in a plan.
#pragma once

#include <string>

#include "graph/graph.h"
#include "levers/settings.h"

namespace plimsoll::engine {

enum class Effect : uint8_t {
  kBitwise,   // nothing changes
  kRounding,  // another order of additions: like another thread count
  kTraining,  // the training itself changes; never chosen unless the user allowed it
};
std::string_view name_of(Effect effect);

struct LeverUse {
  std::string name;
  int64_t count = 0;      // how many values or pieces it touched
  Bytes saves_bytes = 0;  // of the arena, against the plan without it; filled in by search
  double costs_seconds = 0;
  Effect effect = Effect::kBitwise;
};

// A joint graph that a lever rewrote.
struct Rewritten {
  Graph graph;
  int64_t count = 0;  // values it touched
};

}  // namespace plimsoll::engine
