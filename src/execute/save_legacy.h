// Writes Keras's legacy .h5 files: whole models, or weights alone.
#pragma once

#include "execute/weights.h"

namespace plimsoll::engine {

// Writes the whole model if `source` is such a file, with everything under the names that it has there; else the
// weights alone. Fails with P601 or P602; an existing file with that name then stays unchanged.
Status save_legacy(const Session& session, const KerasArchive& source, const std::string& config_text,
                   const OptimizerState& state, const std::string& path);

}  // namespace plimsoll::engine
