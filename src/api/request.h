// Makes the planner's SearchRequest from a run's options. No other code does this. The request includes the bytes of
// the data.
#pragma once

#include "api/run_data.h"
#include "search/search.h"

namespace plimsoll::engine {

// The budget, and the margin of free memory that it leaves unused.
struct Budget {
  Bytes bytes = 0;
  Bytes margin = 0;  // 0 if the user set the budget
};
Budget choose_budget(const RunOptions& options, const DeviceInfo& device);

// Returns the memory that data of these types need outside the arena.
DataDemand data_demand(const Model& model, const DataTypes& types, bool reads_ahead);

// Returns the bytes that the program already held in the memory that the budget limits: device memory or host memory.
Bytes held_before(const RunOptions& options, const Backend& backend);

// Fails with P201 if the options for micro-batches and gradient accumulation are not possible for this batch.
Status check_cut(const RunOptions& options);

// Returns the request for batches of options.batch_size. Fails with P201 if the precision does not exist.
Result<SearchRequest> make_request(const RunOptions& options, const Model& model, const Backend& backend,
                                   const DataOutline& data, const Budget& budget);

// The result of --batch-size auto: the batch that is fastest per sample, and for the user the reason why it is not
// larger.
struct AutomaticBatch {
  int64_t size = 0;
  std::string why;
};
// `device`: what plans are made for; the backend's device, or that with a calibration.
Result<AutomaticBatch> automatic_batch(const RunOptions& options, const Model& model, const Backend& backend,
                                       const Device& device, const DataOutline& data, const Budget& budget);

}  // namespace plimsoll::engine
