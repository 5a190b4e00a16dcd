// What a plimsoll::Description holds: the seam between the half of the C++ interface that describes models and the half
// that runs them.
#pragma once

#include <string>
#include <vector>

#include "model/description.h"
#include "plimsoll/description.h"

namespace plimsoll::engine {

// Weights of a nested model: those of `file`, which lie below the group `prefix` of the whole model's weights file,
// "layers/functional/".
struct NestedWeights {
  std::string file;
  std::string prefix;
};

struct DescribedModel {
  Description description;            // config and compile_config
  std::string file;                   // of Description::load, with weights; "" where there is none
  std::vector<NestedWeights> nested;  // of models loaded from files and called as layers
};

const DescribedModel& described(const plimsoll::Description& description);

}  // namespace plimsoll::engine
