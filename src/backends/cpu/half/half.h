// Nodes that read or write half precision. Element-wise ops convert in their tiles (fused/), products where they pack
// their operands (matmul/), and ops that only move elements move them as they are (move/). All other ops run here:
// their float32 kernels compute pieces of the batch, which are converted in the workspace on the way in and out.
#pragma once

#include "backends/cpu/recipe.h"

namespace plimsoll::engine::cpu {

bool has_half(const Problem& problem);

Result<Recipe> half_recipe(const Problem& problem);

}  // namespace plimsoll::engine::cpu
