// Smaller models that a plan can price: what `plan` proposes if flags of the training are not enough.
#pragma once

#include "api/advice.h"

namespace plimsoll::engine {

struct ModelChange {
  std::string name, note;        // "half the resolution"; what the user has to do for it
  std::vector<TypedFlag> flags;  // of `plan`
  RunOptions options;            // with the flags
};

// Half the height and width, or half the length of a sequence. None if data are given, because they have their size, or
// if the model has several inputs or an input of single features.
std::optional<ModelChange> half_input(const Pricing& pricing, const RunOptions& base);
std::optional<ModelChange> half_filters(const Pricing& pricing, const RunOptions& base);
std::optional<ModelChange> smaller_kernels(const Pricing& pricing, const RunOptions& base);
// Of the layers with the most activations, the one without which the outputs of all layers are smallest. Its removal
// leaves the outputs of the model as they are.
std::optional<ModelChange> without_a_layer(const Pricing& pricing, const RunOptions& base);

}  // namespace plimsoll::engine
