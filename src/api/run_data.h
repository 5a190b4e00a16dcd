// The data of a run: opened from files, or only described if the calling program passes batches.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>

#include "api/options.h"
#include "data/cached_rows.h"
#include "data/column_source.h"

namespace plimsoll::engine {

// Describes a model's inputs and outputs for the data readers.
DataSpec data_spec(const Model& model, bool needs_targets);
DataTypes data_types(const DataSet& data, bool sample_weights);
// The types to assume if there are no data files: inputs as the model declares them, and int32 labels if the loss takes
// labels.
DataTypes assumed_data_types(const Model& model, bool sample_weights);
// Returns whether the run prefetches the next batch. Forced settings decide this if they are set.
bool reads_ahead(const RunOptions& options);
// Returns which split of a data file the mode uses, if the file has several.
Split split_of(Mode mode);

// The properties of the data that a plan depends on.
struct DataOutline {
  DataTypes types;
  int64_t samples = 0;  // 0: unknown
  bool validates = false;
  int64_t validation_samples = 0;  // 0: unknown
  bool reads_ahead = false;
  Bytes reader_bytes = 0;  // what readers of records hold: buffers, indices, decoders
};

struct RunData {
  std::unique_ptr<ColumnSource> source, validation;  // null: the data are not in a file
  std::vector<CachePlan> caches;                     // of the pictures in them
  std::optional<ShufflePlan> shuffle;                // of the training data in files
  DataOutline outline;
};

// Opens the data files that the options name, for training, evaluation or prediction.
Result<RunData> open_run_data(const RunOptions& options, const Model& model);

// How the data are read, for plans: sentences, and an object that is null if there is nothing to say.
std::vector<std::string> data_lines(const RunData& data);
nlohmann::ordered_json data_json(const RunData& data);

}  // namespace plimsoll::engine
