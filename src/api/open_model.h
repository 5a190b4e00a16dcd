// A model and its origin: a model file, a built-in name, or a description made by a program.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/options.h"
#include "formats/keras/archive.h"
#include "model/model.h"

namespace plimsoll::engine {

struct OpenModel {
  std::string file;                     // the path or name that the user gave
  std::optional<KerasArchive> archive;  // absent for a built-in model
  std::string config_text;              // saved again with the weights
  Model model;
  // False: a flag selects another optimizer, so the optimizer state in the file is not used.
  bool optimizer_from_file = true;
  std::vector<std::string> notes = {};  // for the user: skipped metrics, an untested version of Keras

  const KerasArchive* file_archive() const { return archive ? &*archive : nullptr; }
  bool has_weights() const { return archive && archive->tensors() != nullptr; }
};

// `weights`: the file of --weights, or "". `what_if`: changes of the model, of which only a plan can be made.
Result<OpenModel> open_model(const std::string& name, const ModelOptions& overrides, const std::string& weights = "",
                             const WhatIf& what_if = {});
Result<OpenModel> open_description(const Description& description, const std::string& file,
                                   const ModelOptions& overrides);

// Returns Keras's description of an open model, before any change by `what_if`.
Result<Description> description_of(const OpenModel& open);

// Opens the model that the options name, within their memory limit. The data determine input sizes that the model
// leaves open. Fails with P402 if --input-shape contradicts the data.
Result<OpenModel> open_model(const RunOptions& options);

}  // namespace plimsoll::engine
