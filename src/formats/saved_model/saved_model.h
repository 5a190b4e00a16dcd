// A SavedModel folder of Keras 2 (model.save(folder) of tf.keras 2.5 and newer, and of tf_keras): keras_metadata.pb has
// the configuration, and variables/ a checkpoint of TensorFlow with the weights. saved_model.pb, TensorFlow's graph of
// the model, is not read.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "formats/keras/by_layer.h"
#include "formats/saved_model/tensor_bundle.h"

namespace plimsoll::engine {

struct SavedModel {
  nlohmann::json model;     // {"class_name", "config"}, as Keras 2 writes it
  nlohmann::json training;  // training_config; null if the model was never compiled
  TensorBundle bundle;
  WeightsByLayer by_layer;
};

// Returns whether `path` is a folder.
bool is_folder(const std::string& path);

// Fails with P203 if the folder is no SavedModel, or one without Keras's metadata (what model.export writes); P204 if
// the metadata are damaged; P202, P206 or P213 if the checkpoint is.
Result<SavedModel> open_saved_model(const std::string& folder);

// Parses keras_metadata.pb: returns the nodes' paths ("root.layer-1") and metadata (JSON). For the tests and the
// fuzzer.
struct MetadataNode {
  std::string path, metadata;
};
Result<std::vector<MetadataNode>> parse_metadata(std::span<const std::byte> bytes, const std::string& label);

}  // namespace plimsoll::engine
