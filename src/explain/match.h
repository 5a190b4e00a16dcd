// Names the chunks of an allocator's dump: which layer, optimizer slot or gradient of a model has exactly these bytes.
#pragma once

#include "explain/decide.h"
#include "plan/plan.h"

namespace plimsoll::engine::explain {

// Adds to each chunk what of the model has its bytes, for batches of `batch` samples in the precision of the plan.
// TensorFlow rounds each chunk up to a multiple of 256 bytes.
void name_chunks(std::vector<ChunkLine>& chunks, const Model& model, const Plan& plan, int64_t batch);

}  // namespace plimsoll::engine::explain
