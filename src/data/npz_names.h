// Finds the inputs, targets and sample weights among the arrays of an .npz. Private to data/.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace plimsoll::engine {

// Names of arrays for a model with one input and one output.
struct ArrayNames {
  std::string x, y;
  std::vector<std::string> weights;  // candidates; the first one in the file is used
};

// Returns the names that the file uses, or nullopt. In this order: x and y; Keras's x_train and y_train (or x_test,
// y_test; x_val, y_val, depending on `split`); X and Y; images and labels; arr_0 and arr_1, which np.savez writes
// without names. The first pair found is used. Fails with P401 if two of the last three pairs are in the file, because
// the choice would be ambiguous.
Result<std::optional<ArrayNames>> find_naming(const std::string& path, const std::vector<std::string>& there,
                                              Split split, bool needs_y);

// Returns the known names for messages: "x, x_train, X, ...".
std::string known_namings(Split split, bool needs_y);

}  // namespace plimsoll::engine
