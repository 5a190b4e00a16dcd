// What adapt() has found for layers that look up tokens: in a .keras file it stands beside the configuration.
#pragma once

#include <nlohmann/json.hpp>

#include "formats/keras/archive.h"

namespace plimsoll::engine {

// Moves vocabularies and the weights of their tokens from the file into `model`, its configuration: to where Keras puts
// those that were given. Returns whether there were any.
Result<bool> add_adapted(const KerasArchive& archive, nlohmann::json& model);

}  // namespace plimsoll::engine
