// Types that all levers share: the effect of a lever on training, and its use in a plan.
#pragma once

#include <string>

#include "graph/graph.h"
#include "levers/settings.h"

namespace plimsoll::engine {

enum class Effect : uint8_t {
  kBitwise,   // results are identical
  kRounding,  // the order of additions changes, as with another number of threads
  kTraining,  // the training itself changes; used only if the user allowed it
};
std::string_view name_of(Effect effect);

struct LeverUse {
  std::string name;
  int64_t count = 0;      // number of values or micro-batches it affects
  Bytes saves_bytes = 0;  // arena bytes saved compared with the plan without the lever; filled in by search
  double costs_seconds = 0;
  Effect effect = Effect::kBitwise;
};

// A joint graph that a lever rewrote.
struct Rewritten {
  Graph graph;
  int64_t count = 0;  // number of values it affected
};

}  // namespace plimsoll::engine
