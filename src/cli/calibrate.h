// `plimsoll doctor --calibrate`: measures kernels and writes a calibration.
#pragma once

#include "cli/command.h"

namespace plimsoll::engine {

// Times the kernels of the model's plan, or without a model those of the built-in models, and adds them to the
// calibration of the device. Prints what was measured. `flags` are resolved.
Result<int> calibrate(const CommonFlags& flags);

}  // namespace plimsoll::engine
