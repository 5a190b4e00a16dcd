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

// Writes a `.keras` file that Keras can load, with optimizer state. `source` may be null for a model built in C++.
Status save_model(const Session& session, const KerasArchive* source, const std::string& config_text,
                  const OptimizerState& state, const std::string& path);

// Estimated bytes of that file, rounded up a little.
Bytes expected_model_bytes(const Session& session, const KerasArchive* source, const std::string& config_text);

}  // namespace plimsoll::engine
