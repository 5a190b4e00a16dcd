// Who waited for whom in a run, and what would change it: computed from counters, not sampled.
#pragma once

#include <optional>
#include <string>

#include "data/cached_rows.h"
#include "data/prefetcher.h"

namespace plimsoll::engine {

struct DataVerdict {
  double idle = 0;                    // share of the time in which the device waited for data
  std::string waited_for;             // "JPEG decode"
  int threads = 1;                    // that read now
  double rate = 0, device_rate = 0;   // samples per second that are read, and that the device takes
  std::optional<int> threads_needed;  // to read as fast as the device takes
  std::optional<Bytes> cache_bytes;   // on the disk, that would feed the device from the second epoch on
  bool rounds = false;                // this cache needs --cache-pixels uint8

  // One or two sentences: "device idle 41 %: waiting for JPEG decode (2 threads, 390 samples/s). 5 threads would feed
  // it ...". `cores`: of this machine.
  std::string text(int cores) const;
};

// `seconds`: of the run. `cache`: of the pictures that are read; null if there are none.
DataVerdict judge_data(const DataTimes& times, double seconds, const CachePlan* cache);

}  // namespace plimsoll::engine
