// Turns the graph of a prediction into a TensorFlow Lite model in float32.
#pragma once

#include <functional>
#include <string>

#include "formats/tflite/lite_model.h"
#include "model/model.h"

namespace plimsoll::engine::lite {

// Returns the value of a weight, as float32.
using WeightOf = std::function<Result<TensorView>(const std::string& name)>;

// `graph` is the phase "predict" for one sample, with float32 values. Normalisations, biases and factors become part of
// the weights before them, and activations part of the operators before them. Fails with P205, and one list of
// everything that has no equivalent.
Result<Model> convert(const Graph& graph, const engine::Model& model, const WeightOf& weight_of);

// Folds constant factors and offsets into weights, fuses activations, and removes what nobody reads.
void simplify(Model& model);
// Removes tensors that no operator uses, and operators whose outputs nobody reads.
void remove_unused(Model& model);

}  // namespace plimsoll::engine::lite
