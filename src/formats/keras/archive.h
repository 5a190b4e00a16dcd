// The .keras file of Keras 3 (3.0.0 to 3.15.1): a zip of config.json, metadata.json and model.weights.h5.
// Memory held: the text of config.json and its parse; never the weights. Beyond that some 0.4 KiB
// for each dataset, with 400 MB of weights as with 400 bytes.
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
  std::string
      config_text;  // as read, to be written back unchanged: an older Keras may not read what a newer one writes
  std::string metadata_text;           // "" for a bare .json
  std::optional<WeightsFile> weights;  // none for a bare .json
  std::optional<ZipReader> zip;        // keeps the file's other entries at hand, even after its name is gone
};

// A .keras file, or the .json of model.to_json(): told apart by content. Weights are read in place in the archive,
// which stays open as long as this lives, also when its name is gone or another file has it (a deflated entry, which
// Keras never writes, is unpacked to a temporary file without a name). P202 unreadable, P203 not a whole .keras file,
// P204 bad JSON, P213 bad HDF5.
Result<KerasArchive> open_keras(const std::string& path);

// Optimizer variables, "optimizer/vars/<index>".
struct OptimizerVariable {
  int index = 0;
  std::string path;
  TensorType type;
};
inline constexpr std::string_view kOptimizerVars = "optimizer/vars";
inline constexpr std::string_view kInnerOptimizerVars = "optimizer/inner_optimizer/vars";  // of a LossScaleOptimizer
// Whether the optimizer whose state is in the file was a LossScaleOptimizer, whatever config.json says.
bool has_loss_scale_state(const KerasArchive& archive);
std::vector<OptimizerVariable> optimizer_variables(const WeightsFile& weights, std::string_view group = kOptimizerVars);
std::string optimizer_path(int index, std::string_view group = kOptimizerVars);  // "optimizer/vars/3"

// What to write. Of `source`, when given, everything is kept that is not replaced: datasets (write_weights() says
// which), other zip entries; its "optimizer/" only when no entry lies there.
struct KerasContents {
  std::string config_text;
  std::string metadata_text;
  std::span<const WeightEntry> weights;
  const KerasArchive* source = nullptr;
};

// Weights go straight from the caller's memory into the new file, which is written aside.
// `path` may be the source's own. P601/P602, and then a file of that name stays as it was.
Status write_keras(const std::string& path, const KerasContents& contents);

}  // namespace plimsoll::engine
