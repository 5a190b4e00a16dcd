// What the planner is asked for: the only place that makes a SearchRequest of a run's options. The bytes of the data
// are part of it.
#pragma once

#include "api/run_data.h"
#include "search/search.h"

namespace plimsoll::engine {

// The budget and what of the machine's free memory it leaves.
struct Budget {
  Bytes bytes = 0;
  Bytes margin = 0;  // 0 where the user said how much
};
Budget choose_budget(const RunOptions& options, const DeviceInfo& device);

// What data of these types take beside the arena.
DataDemand data_demand(const Model& model, const DataTypes& types, bool reads_ahead);

// Bytes that the program held before, of the memory that the budget is about: the device's own, or the host's.
Bytes held_before(const RunOptions& options, const Backend& backend);

// P201 unless the batch of training can be cut and added up as was asked.
Status check_cut(const RunOptions& options);

// The request for batches of options.batch_size. P201 for a precision that there is none of.
Result<SearchRequest> make_request(const RunOptions& options, const Model& model, const Backend& backend,
                                   const DataOutline& data, const Budget& budget);

// --batch-size auto: the largest that fits in one piece, and why it is no larger, for the user.
struct AutomaticBatch {
  int64_t size = 0;
  std::string why;
};
Result<AutomaticBatch> automatic_batch(const RunOptions& options, const Model& model, const Backend& backend,
                                       const DataOutline& data, const Budget& budget);

}  // namespace plimsoll::engine
