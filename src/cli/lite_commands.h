// What `predict` and `evaluate` do with a `.tflite` file.
#pragma once

#include "cli/command.h"

namespace plimsoll::engine {

Result<int> predict_lite(CommonFlags& flags, const std::string& output);
Result<int> evaluate_lite(CommonFlags& flags);

}  // namespace plimsoll::engine
