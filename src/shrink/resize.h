// The weights of a model whose kernels, input size or layers were changed.
#pragma once

#include "shrink/held_model.h"

namespace plimsoll::engine {

struct Carried {
  HeldModel model;
  std::vector<std::string> cropped;  // weights of which a part was taken
  std::vector<std::string> anew;     // weights that were initialised: nothing in `from` fits them
};

// Makes the model of the changed description. A weight keeps its values where its shape is the same; a larger kernel
// gives its middle; a Dense after a Flatten takes the rows of the nearest pixels. All other weights are initialised.
Result<Carried> carry_over(const HeldModel& from, Description changed);

}  // namespace plimsoll::engine
