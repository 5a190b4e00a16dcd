// Weights that a file lists by layer and by order: Keras's legacy HDF5 files (whole models in .h5, and weights in .h5)
// and SavedModel. Keras 3 has a path for each weight instead (layer_paths.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "formats/hdf5/weights_file.h"

namespace plimsoll::engine {

struct LayerWeights {
  std::string layer;                 // a layer of the outermost model
  std::vector<std::string> tensors;  // their paths in the file: the trainable ones first, as in Keras 2
};

// How the optimizer's variables are ordered after the iteration and the learning rate.
enum class StateOrder {
  kByWeight,  // Keras 3, and Keras 2 from 2.11 on
  kBySlot,    // the optimizers of Keras 2 up to 2.10: all m, then all v
};

struct OptimizerTensors {
  std::string iteration, learning_rate;      // paths; "" if the file has none
  std::vector<std::string> states;           // in the order of Keras 3
  std::vector<std::string> listed;           // all of them in the file's order
  StateOrder order = StateOrder::kByWeight;  // of the file
};

struct WeightsByLayer {
  std::string root;                  // the group of HDF5 that holds the layers: "model_weights" or ""
  std::vector<LayerWeights> layers;  // in the file's order; layers without weights too
  OptimizerTensors optimizer;
};

// Returns nullopt if the HDF5 file has no such lists: it is of Keras 3's layout, or no file of Keras at all. Fails with
// P213 if they are damaged, P206 if a listed weight is not there.
Result<std::optional<WeightsByLayer>> read_by_layer(const WeightsFile& file);

// Sorts the optimizer's tensors by their names: iteration, learning rate, states.
OptimizerTensors sort_optimizer(const std::vector<std::string>& names, const std::string& group);

}  // namespace plimsoll::engine
