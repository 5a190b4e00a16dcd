// A model whose weights and optimizer state are in memory as float32, so that they can be sliced. The bytes are those
// of held_bytes().
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "formats/keras/archive.h"
#include "model/model.h"

namespace plimsoll::engine {

// Whether the file says with which loss and optimizer the model is trained.
bool is_compiled(const Description& description);

struct HeldModel {
  Description description;
  ModelOptions options;  // that the model was read with
  Model model;
  // By the names of weights, and of the optimizer's state ("conv1/kernel/m").
  std::map<std::string, std::vector<float>> values;
  bool has_weights = false, has_state = false;  // has_weights: from a file; has_state: the optimizer's moments
  int64_t iteration = 0;
  double learning_rate = 0;
  std::vector<std::string> notes;

  bool compiled() const { return is_compiled(description); }
};

// What hold() will need for the weights and state of a model.
Bytes held_bytes(const Model& model, bool with_state);

// Reads weights and optimizer state. `archive` may be null, or have no weights: they are then initialised.
Result<HeldModel> hold(Description description, const ModelOptions& options, const KerasArchive* archive);

// Makes the model of a changed description, without values.
Result<HeldModel> with_description(const HeldModel& from, Description description);

// The options with which a description can be read: those without a loss and an optimizer if it was never compiled.
ModelOptions readable(const Description& description, ModelOptions options);

// The optimizer's state in the order of Keras's file.
std::vector<StateVariable> state_of(const Model& model);

// Bound on the bytes of the file that write_held() will write. It is some hundred bytes per weight too large, whatever
// the sizes of the weights.
struct FileBytes {
  Bytes whole = 0, without_state = 0;
};
FileBytes file_bytes(const HeldModel& held, const KerasArchive* source);
// The exact bytes: writes the file beside `path`, and removes it.
Result<FileBytes> measured_bytes(const HeldModel& held, const KerasArchive* source, const std::string& path);

// Writes a .keras file. `source` may be null; what it holds beside weights and state is kept.
Status write_held(const HeldModel& held, const KerasArchive* source, const std::string& path);

// The number of multiplications of a prediction for one sample.
Result<double> multiplications(const Model& model);

}  // namespace plimsoll::engine
