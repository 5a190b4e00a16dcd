// Reverse-mode differentiation as a graph rewrite. The values that the added nodes read stay alive until the backward
// pass, and no others.
#pragma once

#include <vector>

#include "graph/builder.h"

namespace plimsoll::engine {

// Adds the gradient of the scalar `loss` with respect to each of `wrt`. Returns the gradients in the order of `wrt`; a
// gradient is kNone if the loss does not depend on that value. Values that lie on no path from `wrt` to `loss` get no
// gradient nodes, so frozen layers cost nothing. `scale` is a scalar that multiplies the loss; kNone means 1.
std::vector<ValueId> append_gradients(GraphBuilder& b, ValueId loss, const std::vector<ValueId>& wrt,
                                      ValueId scale = kNone);

}  // namespace plimsoll::engine
