// Functions of TensorFlow on tensors, which Functional models of Keras 2 hold as layers (TFOpLambda, SlicingOpLambda),
// as operations of keras.ops or layers of Keras 3.
#pragma once

#include <nlohmann/json.hpp>

namespace plimsoll::engine {

// Replaces the functions in the configuration of a Functional model. A function that has no counterpart, or is called
// with an argument that its counterpart does not have, stays as it is. So does whatever has an unexpected structure.
void upgrade_functions(nlohmann::json& config);

// Brings the calls of layers that take tensors by name, [["x", 0, 0, {"value": ["y", 0, 0]}]], into the form of
// Keras 3.
void upgrade_named_tensors(nlohmann::json& config);

// Returns whether this is a tensor in Keras 2's form: ["layer", call, output], and perhaps named arguments.
bool is_old_tensor(const nlohmann::json& value);

}  // namespace plimsoll::engine
