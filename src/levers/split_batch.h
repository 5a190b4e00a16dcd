// The lever that cuts the batch into pieces inside one phase, exactly: every value that consists of samples becomes one
// value per piece. Between two points where samples meet, one piece runs after the other, so what a piece needs only
// for a moment is alive for one piece at a time.
//
// Where samples meet, each piece computes its part and the parts are merged: sums (weight gradients, losses, the sums
// of BatchNormalization's gradient) are added, the statistics of BatchNormalization are merged by Chan's formula
// (Updating Formulae and a Pairwise Algorithm for Computing Sample Variances, 1979). So the result is that of the whole
// batch up to rounding, also for BatchNormalization, which micro-batches would change.
#pragma once

#include <string_view>

#include "levers/lever.h"

namespace plimsoll::engine {

inline constexpr std::string_view kSplit = "split";
// The number of pieces.
inline constexpr int64_t kSplitValues[] = {2, 4, 8, 16, 32};

// Cuts the batch of a training phase into `pieces` pieces whose sizes differ by at most one sample; into single samples
// if there are fewer of them. Returns the graph unchanged, with count 0, if a node on the way cannot be cut
// (split_forms in ops/op.h) or if the phase does not train. The count is the number of pieces.
Rewritten split_batch(Graph joint, int64_t pieces);

}  // namespace plimsoll::engine
