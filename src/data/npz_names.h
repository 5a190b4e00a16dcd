// Which arrays of an .npz are the inputs, targets and sample weights. Private to data/.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace plimsoll::engine {

// Names of arrays for a model with one input and one output.
struct ArrayNames {
  std::string x, y;
  std::vector<std::string> weights;  // the first that is there
};

// The naming that the file follows, if any does: x and y; Keras's own x_train and y_train (x_test, y_test; x_val,
// y_val), whichever `split` asks for; X and Y; images and labels; arr_0 and arr_1 of np.savez without names. The first
// kind that is there wins. P401 where two kinds of the last three are there: nothing says which one is meant.
Result<std::optional<ArrayNames>> find_naming(const std::string& path, const std::vector<std::string>& there,
                                              Split split, bool needs_y);

// "x", "x_train (of Keras's data sets)", ...: for messages.
std::string known_namings(Split split, bool needs_y);

}  // namespace plimsoll::engine
