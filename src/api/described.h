// The contents of a plimsoll::Description. They connect the part of the C++ interface that describes models with the
// part that runs them.
#pragma once

#include <string>
#include <vector>

#include "model/description.h"
#include "plimsoll/description.h"

namespace plimsoll::engine {

// The weights of a nested model. They come from `file`. In the weights file of the whole model they belong to the group
// `prefix`, for example "layers/functional/".
struct NestedWeights {
  std::string file;
  std::string prefix;
};

struct DescribedModel {
  Description description;            // config and compile_config
  std::string file;                   // the file with weights that Description::load read, or ""
  std::vector<NestedWeights> nested;  // for models that were loaded from files and called as layers
};

const DescribedModel& described(const plimsoll::Description& description);

}  // namespace plimsoll::engine
