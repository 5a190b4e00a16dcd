// The state of a model between two steps in one file: weights, statistics, optimizer state, and where the optimizer
// stands. A session with another plan of the same model can go on from it.
#pragma once

#include "execute/weights.h"

namespace plimsoll::engine {

inline constexpr const char* kStateFormat = "plimsoll.state/1";

// `identity` tells which model the state belongs to. P601 or P602 if the file cannot be written.
Status write_state(const Session& session, const OptimizerState& state, const nlohmann::json& identity,
                   const std::string& path);
// P212 for a damaged file or one of another model; the session then keeps what it had.
Result<OptimizerState> read_state(Session& session, const nlohmann::json& identity, const std::string& path);

}  // namespace plimsoll::engine
