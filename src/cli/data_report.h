// What a run says about its data at its end: who waited for whom, and what would change it.
#pragma once

#include <nlohmann/json.hpp>

#include "api/run_data.h"
#include "cli/command.h"
#include "data/prefetcher.h"

namespace plimsoll::engine {

// Says so if the device often waited for data, and what would feed it. A wait of less than half a second is not worth
// a line: in a run of milliseconds it is noise. `seconds`: of the training.
void tell_waiting(const CommonFlags& flags, const DataTimes& times, const RunData& data, double seconds);

// The same, and the counters it comes from, for the log and --json.
nlohmann::ordered_json data_event(const DataTimes& times, const RunData& data, double seconds);

}  // namespace plimsoll::engine
