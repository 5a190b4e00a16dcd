// Writes Keras's config.json with the changes of a run, so that the saved file records how the model was trained.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "model/model.h"

namespace plimsoll::engine {

// Returns whether a flag overrides the file's configuration.
bool any_override(const ModelOptions& overrides);

// Returns the text of config.json. `config` comes from the file, or from a description with its compile configuration.
// `text` is the original text of `config`; it is returned as it is if nothing changed. `wrapped_state`: the optimizer
// state in the file belongs to a LossScaleOptimizer, and so does the saved state.
std::string saved_config(const nlohmann::json& config, std::string text, const ModelOptions& overrides,
                         const Model& model, bool wrapped_state);

}  // namespace plimsoll::engine
