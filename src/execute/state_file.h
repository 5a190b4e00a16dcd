// A file with the state of a model between two steps: weights, moving statistics, optimizer state, and the optimizer's
// step and learning rate. A session with another plan of the same model can continue from it.
#pragma once

#include "execute/weights.h"

namespace plimsoll::engine {

inline constexpr const char* kStateFormat = "plimsoll.state/1";

// `identity` identifies the model that the state belongs to. Fails with P601 or P602 if the file cannot be written.
Status write_state(const Session& session, const OptimizerState& state, const nlohmann::json& identity,
                   const std::string& path);
// Fails with P212 if the file is damaged or belongs to another model; the session's state is then unchanged.
Result<OptimizerState> read_state(Session& session, const nlohmann::json& identity, const std::string& path);

}  // namespace plimsoll::engine
