// Where the weights and the optimizer state of a model lie in its file.
#pragma once

#include <string>
#include <vector>

#include "formats/keras/archive.h"
#include "model/model.h"

namespace plimsoll::engine {

// Returns the path in the file of each of model.weights(). Files that list their weights by layer (WeightsByLayer) are
// matched by the names of the outermost model's layers, or, if these differ, by the order of the layers that have
// weights, as Keras does. Fails with P206 if the numbers of layers or weights differ.
Result<std::vector<std::string>> weight_places(const Model& model, const KerasArchive& archive);

// The same for lists that belong to no file yet. `label` is the file's name in messages.
Result<std::vector<std::string>> weight_places(const Model& model, const WeightsByLayer& by_layer,
                                               const std::string& label);
// Returns such lists for a model, with the layers below the group `root`.
WeightsByLayer list_by_layer(const Model& model, const std::string& root);

// The optimizer's variables in a file.
struct StatePlaces {
  std::string iteration, learning_rate;  // "" if the file has none
  std::vector<std::string> states;       // in Keras 3's order
};
// `scheduled`: the learning rate follows a schedule, so Keras 3 has no variable for it.
StatePlaces state_places(const KerasArchive& archive, bool scheduled);

}  // namespace plimsoll::engine
