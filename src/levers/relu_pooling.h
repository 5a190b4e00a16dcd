#pragma once

#include "levers/lever.h"

namespace plimsoll::engine {

// relu_grad(max_pool2d_grad(dp, i), y) = max_pool2d_grad(relu_grad(dp, p), i), where p is the pooled y. The relu mask
// is applied at the pooled size, so the activation before pooling need not be saved. The result is identical bit for
// bit, because the value at the maximum is p itself. It costs no time, so it is always done and is not in the lever
// table.
Rewritten mask_relu_after_pooling(const Graph& graph);

}  // namespace plimsoll::engine
