// The lever that computes the logits of a large vocabulary in chunks of rows: the product with the last weights, its
// softmax, loss and metrics, and its gradients, for one chunk after the other. The logits of all positions, which often
// take most of a language model's memory, never exist as a whole.
//
// The gradient of the loss per row does not depend on the losses, so the backward pass of a chunk follows its forward
// pass at once, and nothing is computed twice. The gradients of the weights are added up chunk by chunk.
#pragma once

#include <string_view>

#include "levers/lever.h"

namespace plimsoll::engine {

inline constexpr std::string_view kChunkLogits = "chunk-logits";
// The number of chunks.
inline constexpr int64_t kChunkLogitsValues[] = {8, 64};
// Products with fewer columns stay whole.
inline constexpr int64_t kLeastVocabulary = 4096;

// The count is the number of chunks; 0, and the graph unchanged, if there are no such logits, or if they are an output
// or something else needs them as a whole.
Rewritten chunk_logits(Graph joint, int64_t chunks);

}  // namespace plimsoll::engine
