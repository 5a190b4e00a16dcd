// The transient memory of a phase as rectangles of bytes and nodes, for pictures over time.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"

namespace plimsoll::engine {

// A part of the device's memory that is in use from one node to another, both included. Values that take turns in one
// place without a pause (a result over its input) are one band.
struct Band {
  Bytes offset = 0, bytes = 0;
  int first = 0, last = 0;
  std::string layer, name;  // of its first value
  Category category = Category::kActivations;
};

// The bands above the persistent values, in the order of their first node.
std::vector<Band> transient_bands(const PhasePlan& phase, Bytes persistent);

// Bytes in use at each node: the persistent ones, and the bands at it. The largest is the phase's live set.
std::vector<Bytes> live_bytes(const PhasePlan& phase, Bytes persistent);

}  // namespace plimsoll::engine
