// A GraphBuilder that infers shapes with the registered ops.
#pragma once

#include "graph/builder.h"

namespace plimsoll::engine {

GraphBuilder make_builder(Graph graph = {});

}  // namespace plimsoll::engine
