// Keras's config.json for what a run changed, so that the saved file says what it was trained with.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "model/model.h"

namespace plimsoll::engine {

// Whether flags say otherwise than the file.
bool any_override(const ModelOptions& overrides);

// `config` is the file's, or a description's with its compile configuration; `text` what it was read from, written back
// where nothing changed. `wrapped_state`: the file's state is that of a LossScaleOptimizer, and so is what is saved.
std::string saved_config(const nlohmann::json& config, std::string text, const ModelOptions& overrides,
                         const Model& model, bool wrapped_state);

}  // namespace plimsoll::engine
