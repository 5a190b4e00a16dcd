// Packing under a given height by ejection search, for problems of any size.
#pragma once

#include "plan/pack_problem.h"

namespace plimsoll::engine {

// The offsets of a packing that may be unfinished: -1 for an item that has none yet.
using Offsets = std::vector<Bytes>;

// Puts each item of `order` that has no offset yet at the lowest one at which it overlaps no other in time and place.
// Returns the height. Stops as soon as this reaches `give_up_at`; then some items may have no offset.
Bytes first_fit(const PackProblem& problem, const std::vector<int>& order, Bytes give_up_at, Offsets& offsets);

// Looks for a packing of at most `height` bytes, from one that may be higher. Items above the height are taken out.
// Then each of them in turn is put where the items in its way weigh the least; these are taken out and wait their turn.
// An item weighs more each time it could not be placed without taking out others, so the search does not run in
// circles. (This is the ejection pool with guided penalties of Nagata and Braysy, "A powerful route minimization
// heuristic for the vehicle routing problem with time windows", Operations Research Letters 37, 2009, with gaps instead
// of routes.) The prices of places are changed at random by some per cent; another `attempt` draws other numbers, and
// may find at once what this one does not find. Returns whether a packing was found before `work` was used up;
// `offsets` is changed only if so.
bool pack_by_ejection(const PackProblem& problem, Bytes height, int attempt, int64_t& work, Offsets& offsets);

}  // namespace plimsoll::engine
