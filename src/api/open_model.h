// A model with what it came from: a .keras file, a built-in name, or a description made by a program.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/options.h"
#include "formats/keras/archive.h"
#include "model/model.h"

namespace plimsoll::engine {

struct OpenModel {
  std::string file;                     // as the user named it
  std::optional<KerasArchive> archive;  // none for a built-in model
  std::string config_text;              // written back with the weights
  Model model;
  bool optimizer_from_file = true;      // false: flags named another, and the file's state is not for it
  std::vector<std::string> notes = {};  // for the user: metrics that are skipped, an untested version of Keras

  const KerasArchive* file_archive() const { return archive ? &*archive : nullptr; }
  bool has_weights() const { return archive && archive->weights; }
};

Result<OpenModel> open_model(const std::string& name, const ModelOptions& overrides);
Result<OpenModel> open_description(const Description& description, const std::string& file,
                                   const ModelOptions& overrides);

// The model that the options name, inside their limit of memory. Where its inputs leave sizes open, the data say them;
// P402 where --input-shape says otherwise than the data.
Result<OpenModel> open_model(const RunOptions& options);

}  // namespace plimsoll::engine
