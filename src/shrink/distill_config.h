// Changes of a model's configuration for distillation.
#pragma once

#include "model/description.h"

namespace plimsoll::engine {

// The same model with logits as its output: a softmax at its end is left out. Weights keep their names and places.
// Fails with P205 if the model does not end in one output of classes. `name`: of the model, in messages.
Result<Description> with_logits(const Description& description, const std::string& name);

// A model of logits with a second output, "teacher": the logits divided by the temperature. Its loss is
// alpha * (the loss of the labels) + (1 - alpha) * temperature^2 * (cross-entropy with the teacher's probabilities).
Result<Description> with_teacher(const Description& logits, double temperature, double alpha, const std::string& name);
inline constexpr const char* kTeacherOutput = "teacher";

}  // namespace plimsoll::engine
