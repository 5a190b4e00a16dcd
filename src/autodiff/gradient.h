// Reverse-mode differentiation as a graph rewrite: what the added nodes read is what must stay alive, and nothing else.
#pragma once

#include <vector>

#include "graph/builder.h"

namespace plimsoll::engine {

// Adds the gradient of the scalar `loss` with respect to each of `wrt`, and returns them in that order (kNone where no
// path leads there). Nothing is computed for values that lie on no path from `wrt` to `loss`: frozen layers cost
// nothing. `scale`, a scalar, multiplies the loss; kNone is one.
std::vector<ValueId> append_gradients(GraphBuilder& b, ValueId loss, const std::vector<ValueId>& wrt,
                                      ValueId scale = kNone);

}  // namespace plimsoll::engine
