// Loads and saves weights and optimizer state directly between a file and a session's arena.
#pragma once

#include "execute/session.h"
#include "formats/keras/archive.h"

namespace plimsoll::engine {

// The progress of training. Checkpoints and `.keras` files contain it.
struct OptimizerState {
  int64_t iteration = 0;     // number of updates so far
  double learning_rate = 0;  // from the file; a schedule overrides it
};

struct LoadReport {
  OptimizerState optimizer;
  std::vector<std::string> notes;  // for the user: "the file has no optimizer moments; they start at zero"
};

// Fails with kWeightMissing or kWeightShape; the error lists all affected weights.
Result<LoadReport> load_weights(Session& session, const KerasArchive& archive, bool keep_optimizer);

// Sets weights by their initializers, and optimizer state to zero.
Status initialize_weights(Session& session, uint64_t seed);

// Replaces the weights by their moving averages if the optimizer keeps them, as Keras does at the end of fit.
Status use_averages(Session& session);

// Returns the optimizer's state after iteration and learning rate, in the order of Keras's file.
std::vector<StateVariable> state_of(const Session& session);

// The files that save_model() writes, by the ending of their names, as in Keras: `.keras`, `.weights.h5` (Keras 3's
// weights alone), and `.h5` (the legacy format: the whole model if it came from such a file, or, for a .json with
// weights, the weights alone).
enum class SaveFormat { kKeras, kWeights, kLegacyH5 };
// Fails with P201 if there is no such ending. `flag` is what named the path: "--save".
Result<SaveFormat> save_format(const std::string& path, const std::string& flag);
// Fails with P201 if a model from `source` (may be null) cannot be saved under that name.
Status check_save(const std::string& path, const KerasArchive* source, const std::string& flag);

// Writes a file that Keras can load, with optimizer state. `source` may be null for a model built in C++.
Status save_model(const Session& session, const KerasArchive* source, const std::string& config_text,
                  const OptimizerState& state, const std::string& path);

// Estimated bytes of that file, rounded up a little.
Bytes expected_model_bytes(const Session& session, const KerasArchive* source, const std::string& config_text);

}  // namespace plimsoll::engine
