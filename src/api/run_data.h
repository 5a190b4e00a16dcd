// The data of a run: opened from its files, or described where a program hands in batches.
#pragma once

#include <memory>

#include "api/options.h"
#include "data/column_source.h"

namespace plimsoll::engine {

// A model's ports as the data stage wants them.
DataSpec data_spec(const Model& model, bool needs_targets);
DataTypes data_types(const DataSet& data, bool sample_weights);
// Where there is no data to ask: inputs as the model declares them, and int32 labels where the loss takes them.
DataTypes assumed_data_types(const Model& model, bool sample_weights);
// Whether the run reads the next batch while one is computed. Forced settings say so themselves.
bool reads_ahead(const RunOptions& options);
// The arrays that are meant where a file holds several splits.
Split split_of(Mode mode);

// What a plan must know of the data.
struct DataOutline {
  DataTypes types;
  int64_t samples = 0;  // 0: unknown
  bool validates = false;
  int64_t validation_samples = 0;  // 0: unknown
  bool reads_ahead = false;
};

struct RunData {
  std::unique_ptr<ColumnSource> source, validation;  // null: in no file
  DataOutline outline;
};

// The files of the options, to train, evaluate or predict with.
Result<RunData> open_run_data(const RunOptions& options, const Model& model);

}  // namespace plimsoll::engine
