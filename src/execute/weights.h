// Weights and optimizer state between a file and a session's arena, straight into and out of it.
#pragma once

#include "execute/session.h"
#include "formats/keras/archive.h"

namespace plimsoll::engine {

// Where training stands; checkpoints and `.keras` files carry it.
struct OptimizerState {
  int64_t iteration = 0;     // updates made
  double learning_rate = 0;  // as the file has it; a schedule overrides it
};

struct LoadReport {
  OptimizerState optimizer;
  std::vector<std::string> notes;  // what a user should know: "the file has no moments; they start at zero"
};

// kWeightMissing and kWeightShape list every weight concerned.
Result<LoadReport> load_weights(Session& session, const KerasArchive& archive, bool keep_optimizer);

// Weights by their initializers, state zero.
Status initialize_weights(Session& session, uint64_t seed);

// Writes a `.keras` file that Keras loads, optimizer state included. `source` may be null for a model made in C++.
Status save_model(const Session& session, const KerasArchive* source, const std::string& config_text,
                  const OptimizerState& state, const std::string& path);

// Bytes of that file, a little more rather than less.
Bytes expected_model_bytes(const Session& session, const KerasArchive* source, const std::string& config_text);

}  // namespace plimsoll::engine
