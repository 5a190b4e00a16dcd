// The files that Keras keeps models in:
//
//   .keras        of Keras 3 (3.0.0 to 3.15.1): a zip of config.json, metadata.json and model.weights.h5
//   .json         an architecture without weights: model.to_json() of Keras 2 and 3
//   .h5           a whole model of Keras 2, or of Keras 3's legacy format: configurations in attributes of HDF5
//   SavedModel    a folder of Keras 2 with keras_metadata.pb (formats/saved_model)
//
// Keeps the text of the configuration and its parsed form in memory, but never the weights. In addition it needs about
// 0.4 KiB per dataset, whatever the size of the weights.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "formats/hdf5/weights_file.h"
#include "formats/keras/by_layer.h"
#include "formats/saved_model/tensor_bundle.h"
#include "formats/zip/zip_reader.h"

namespace plimsoll::engine {

enum class ModelFormat { kKeras, kJson, kLegacyH5, kSavedModel };

// The attributes of a whole model in .h5, as read. They are written back unchanged where nothing changed.
struct LegacyTexts {
  std::string model_config, training_config;  // training_config: "" for a model that was never compiled
  std::string keras_version, backend;
};

struct KerasArchive {
  std::string path;
  ModelFormat format = ModelFormat::kKeras;
  nlohmann::json config;  // in Keras 3's form, with its compile_config
  // The text as read. It is written back unchanged, because an older Keras may not read what a newer one writes. For
  // models of Keras 2 and of .h5: the text of `config`.
  std::string config_text;
  std::string metadata_text;               // only in .keras, else ""
  bool adapted = false;                    // `config` also has vocabularies that adapt() found; `config_text` has not
  bool upgraded = false;                   // a .keras of Keras 2: `config` is no longer that of `metadata_text`
  std::optional<WeightsFile> weights;      // empty for a bare .json and for a SavedModel
  std::optional<TensorBundle> bundle;      // the weights of a SavedModel
  std::optional<WeightsByLayer> by_layer;  // set if the weights are not at Keras 3's paths
  LegacyTexts legacy;                      // only of kLegacyH5
  std::string weights_from;                // the file of take_weights(), else ""
  std::optional<ZipReader> zip;  // gives access to the file's other entries, even after the file was renamed or removed

  // The weights, wherever they lie; null if there are none.
  const WeightSource* tensors() const {
    if (bundle) return &*bundle;
    return weights ? &*weights : nullptr;
  }
};

// Opens a model file; its content decides which kind it is, whatever its name. Weights are read in place. The archive
// stays open as long as the result lives, even if the file is renamed, removed or replaced. A deflated weights
// entry, which Keras never writes, is unpacked to an unnamed temporary file. Fails with P202 if the file is unreadable,
// P203 if it is not a complete model file, P204 for bad JSON, P213 for bad HDF5.
Result<KerasArchive> open_keras(const std::string& path);

// Takes the weights of another file, as model.load_weights does: of any model file that has weights, or a file of
// weights alone (.weights.h5 of Keras 3, or the .h5 that Keras 2 writes).
Status take_weights(KerasArchive& archive, const std::string& path);

// Optimizer variables, stored as "optimizer/vars/<index>".
struct OptimizerVariable {
  int index = 0;
  std::string path;
  TensorType type;
};
inline constexpr std::string_view kOptimizerVars = "optimizer/vars";
// Used by a LossScaleOptimizer.
inline constexpr std::string_view kInnerOptimizerVars = "optimizer/inner_optimizer/vars";
// Returns whether the optimizer state in the file belongs to a LossScaleOptimizer, whatever config.json says.
bool has_loss_scale_state(const KerasArchive& archive);
std::vector<OptimizerVariable> optimizer_variables(const WeightsFile& weights, std::string_view group = kOptimizerVars);
std::string optimizer_path(int index, std::string_view group = kOptimizerVars);  // "optimizer/vars/3"

// The contents to write. If `source` is given, everything that is not replaced is kept: datasets (see write_weights())
// and other zip entries. Its "optimizer/" is kept only if no entry has a path there.
struct KerasContents {
  std::string config_text;
  std::string metadata_text;
  std::span<const WeightEntry> weights;
  const KerasArchive* source = nullptr;
};

// Writes weights directly from the caller's memory into a temporary file that then replaces `path`. `path` may be the
// source's own path. Fails with P601 or P602; an existing file with that name then stays unchanged.
Status write_keras(const std::string& path, const KerasContents& contents);

// Writes weights alone, as model.save_weights does. With `attributes` the file is of the legacy layout, else of Keras
// 3's. `source` may be null. The same guarantees.
Status write_weights_file(const std::string& path, std::span<const WeightEntry> weights, const WeightsFile* source,
                          std::span<const TextAttribute> attributes = {});

// Returns the attributes of a legacy file: the lists of layers and weights, and the texts unless the file holds weights
// alone. `optimizer` are the paths of the optimizer's variables, in the file's order.
std::vector<TextAttribute> legacy_attributes(const LegacyTexts& texts, const WeightsByLayer& by_layer,
                                             std::span<const std::string> optimizer);

}  // namespace plimsoll::engine
