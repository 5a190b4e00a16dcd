// The prefetch lever (reading the next batch ahead), and the bytes that data need outside the arena.
#pragma once

#include <span>

#include "search/search.h"

namespace plimsoll::engine {

inline constexpr std::string_view kPrefetch = "prefetch";
inline constexpr int64_t kPrefetchValues[] = {1};

// Bytes of one staged input batch, for the largest phase.
Bytes staged_bytes(const SearchRequest& request, std::span<const PhasePlan> phases);
// The smallest number of bytes that data need. A device with its own memory always stages a batch there, and its
// readers are in host memory. On other devices prefetch can be turned off.
Bytes least_data_bytes(const SearchRequest& request, std::span<const PhasePlan> phases);

// Sets data_bytes and the lever: one request is read ahead, unless that is forbidden or does not fit. Prefetch costs
// bytes, saves waiting, and changes nothing else.
void choose_prefetch(const SearchRequest& request, Plan& plan);

}  // namespace plimsoll::engine
