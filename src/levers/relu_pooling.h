#pragma once

#include "levers/lever.h"

namespace plimsoll::engine {

// relu_grad(max_pool2d_grad(dp, i), y) = max_pool2d_grad(relu_grad(dp, p), i) where p is the pooled y: the mask of relu
// is taken at the pooled size, and the activation before pooling need not be saved. Bitwise: the value at the maximum
// is p itself. It costs nothing, so it is always done and is no row of the table of levers.
Rewritten mask_relu_after_pooling(const Graph& graph);

}  // namespace plimsoll::engine
