// Packing under a given height by complete search, for small or hard problems.
#pragma once

#include "plan/pack_eject.h"

namespace plimsoll::engine {

enum class SearchEnd { kFound, kNone, kGaveUp };

// Looks for a packing of at most `height` bytes. `rank` orders items that could lie at the same offset; it has no say
// in what is found in the end, only in how soon. kNone: no packing is that low. `offsets` is changed only for kFound.
SearchEnd pack_canonically(const PackProblem& problem, Bytes height, const std::vector<int>& rank, int64_t& work,
                           Offsets& offsets);

}  // namespace plimsoll::engine
