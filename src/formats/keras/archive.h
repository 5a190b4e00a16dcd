// The .keras file of Keras 3 (3.0.0 to 3.15.1): a zip of config.json, metadata.json and model.weights.h5. Keeps the
// text of config.json and its parsed form in memory, but never the weights. In addition it needs about 0.4 KiB per
// dataset, whatever the size of the weights.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "formats/hdf5/weights_file.h"
#include "formats/zip/zip_reader.h"

namespace plimsoll::engine {

struct KerasArchive {
  std::string path;
  nlohmann::json config;
  // The text as read. It is written back unchanged, because an older Keras may not read what a newer one writes.
  std::string config_text;
  std::string metadata_text;           // "" for a bare .json
  std::optional<WeightsFile> weights;  // empty for a bare .json
  std::optional<ZipReader> zip;  // gives access to the file's other entries, even after the file was renamed or removed
};

// Opens a .keras file or the .json of model.to_json(); the content decides which. Weights are read in place. The
// archive stays open as long as the result lives, even if the file is renamed, removed or replaced. A deflated weights
// entry, which Keras never writes, is unpacked to an unnamed temporary file. Fails with P202 if the file is unreadable,
// P203 if it is not a complete .keras file, P204 for bad JSON, P213 for bad HDF5.
Result<KerasArchive> open_keras(const std::string& path);

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

}  // namespace plimsoll::engine
