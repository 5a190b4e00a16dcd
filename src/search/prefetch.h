// The prefetch lever (reading the next batch ahead), and the bytes that data need outside the arena.
#pragma once

#include <cmath>
#include <span>

#include "search/search.h"

namespace plimsoll::engine {

inline constexpr std::string_view kPrefetch = "prefetch";
inline constexpr int64_t kPrefetchValues[] = {1};

// Bytes of one staged input batch, for the largest phase.
Bytes staged_bytes(const SearchRequest& request, std::span<const PhasePlan> phases);
// The smallest number of bytes that data need, for phases of at most this many samples. A device with its own memory
// always stages a batch there, and its readers are in host memory. On other devices prefetch can be turned off.
Bytes least_data_bytes(const SearchRequest& request, int64_t samples);
Bytes least_data_bytes(const SearchRequest& request, std::span<const PhasePlan> phases);

// Rounds to picoseconds, so that the same kernels in another order have the same time: the rounding error of a sum is
// smaller than that.
inline double rounded_seconds(double seconds) {
  return std::round(seconds * 1e12) / 1e12;
}

// Sets data_bytes and the lever: one request is read ahead, unless that is forbidden or does not fit. Prefetch costs
// bytes, saves waiting, and changes nothing else.
void choose_prefetch(const SearchRequest& request, Plan& plan);

// Seconds that the data of one window take to arrive: over the link of a device with its own memory, else from a file
// in the page cache. 0 if the caller has the data in memory.
double input_seconds(const SearchRequest& request);
// Sets the seconds of a step from those of its kernels. A batch that is fetched ahead arrives while the batch before it
// is processed; otherwise the step waits for it.
void add_input_seconds(const SearchRequest& request, Plan& plan);

}  // namespace plimsoll::engine
