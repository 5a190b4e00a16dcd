// A GraphBuilder that infers shapes with the registered ops.
#pragma once

#include "graph/builder.h"

namespace plimsoll {

GraphBuilder make_builder(Graph graph = {});

}  // namespace plimsoll
