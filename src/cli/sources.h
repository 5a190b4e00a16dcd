// The data flags that `plan` and `fit` share, and the request they make: with the same flags both search the same plan.
#pragma once

#include <memory>

#include "cli/command.h"
#include "data/column_source.h"

namespace plimsoll {

struct DataFlags {
  std::string data, validation_data, class_weight;
  double validation_split = 0;
  int64_t validation_batch = 0;
  bool shuffle = true;
  uint64_t seed = 0;

  Status check() const;
};

// --data with `data_text` as its help, and the flags of validation and class weights.
CLI::Option* add_data_flags(CLI::App& command, DataFlags& flags, const std::string& data_text);

struct Sources {
  std::unique_ptr<ColumnSource> train, validation;  // null: not given
  DataTypes types;
  bool validates = false;  // --validation-split without --data: there is validation, of unknown size

  int64_t samples() const { return train ? train->samples() : 0; }  // 0: unknown
};

// Without --data the types are assumed: float32 inputs, and int32 labels where the loss takes them.
Result<Sources> open_sources(const DataFlags& flags, const Model& model);

// What `fit` plans for with these flags and data. Resolves --batch-size auto, and says so.
struct TrainingRequest {
  SearchRequest request;
  int64_t batch_size = 0;  // --batch-size, or what auto chose
};
Result<TrainingRequest> training_request(const CommonFlags& common, const DataFlags& flags, const Model& model,
                                         const Device& device, const Sources& sources, const Budget& budget);

}  // namespace plimsoll
