// Configurations of Keras 2, and of Keras 3's legacy .h5 files, in the form that Keras 3 writes today. Follows what
// Keras 3 itself does to load them (keras/src/legacy/saving), and Keras 2's source where Keras 3 cannot load them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace plimsoll::engine {

// Returns whether the configuration of a model needs upgrade_model(): its objects do not name their modules, or Keras 2
// wrote it.
bool is_legacy_config(const nlohmann::json& model);

// Returns the model {"class_name", "config"} in Keras 3's form. What is not understood stays as it is. The structure is
// not checked: whoever reads the result does that. `model` has at most limits::kJsonDepth levels.
nlohmann::json upgrade_model(nlohmann::json model);

// Returns the compile_config for a `training_config`; null if it is no object.
nlohmann::json upgrade_training(const nlohmann::json& training);

// The reverse: the training_config of a .h5 file for a compile_config.
nlohmann::json training_of(const nlohmann::json& compiled);

// Removes Python's type marks: {"class_name": "__tuple__", "items": [...]} becomes a list.
void remove_type_marks(nlohmann::json& value);

}  // namespace plimsoll::engine
