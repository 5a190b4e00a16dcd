#include "cli/data_report.h"

#include <algorithm>
#include <thread>

#include "base/json.h"
#include "data/verdict.h"

namespace plimsoll::engine {
namespace {

const CachePlan* first_cache(const RunData& data) {
  return data.caches.empty() ? nullptr : &data.caches[0];
}

}  // namespace

void tell_waiting(const CommonFlags& flags, const DataTimes& times, const RunData& data, double seconds) {
  if (times.samples == 0 || times.consumer < std::max(0.1 * seconds, 0.5)) return;
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  message(flags, judge_data(times, seconds, first_cache(data)).text(cores));
}

nlohmann::ordered_json data_event(const DataTimes& times, const RunData& data, double seconds) {
  nlohmann::ordered_json json = ordered_object({{"samples", times.samples},
                                                {"reading_seconds", times.reading},
                                                {"waited_seconds", times.consumer},
                                                {"reader_waited_seconds", times.reader},
                                                {"threads", times.readers}});
  if (times.rows.records + times.rows.cached > 0)
    json.update(ordered_object({{"decoded", times.rows.records},
                                {"decode_seconds", times.rows.seconds},
                                {"file_seconds", times.rows.file_seconds},
                                {"from_cache", times.rows.cached},
                                {"cache_seconds", times.rows.cached_seconds}}));
  if (times.samples == 0) return json;
  const DataVerdict verdict = judge_data(times, seconds, first_cache(data));
  json.update(ordered_object({{"idle", verdict.idle},
                              {"waited_for", verdict.waited_for},
                              {"samples_per_second", verdict.rate},
                              {"device_samples_per_second", verdict.device_rate}}));
  if (verdict.threads_needed) json["threads_needed"] = *verdict.threads_needed;
  if (verdict.cache_bytes) {
    json["cache_bytes"] = *verdict.cache_bytes;
    json["cache_pixels"] = verdict.rounds ? "uint8" : "exact";
  }
  return json;
}

}  // namespace plimsoll::engine
