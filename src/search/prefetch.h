// The lever of reading the next batch ahead, and the bytes that data take beside the arena.
#pragma once

#include <span>

#include "search/search.h"

namespace plimsoll::engine {

inline constexpr std::string_view kPrefetch = "prefetch";
inline constexpr int64_t kPrefetchValues[] = {1};

// Bytes of one staged input batch, for the largest phase.
Bytes staged_bytes(const SearchRequest& request, std::span<const PhasePlan> phases);
// The least that data take. A device with memory of its own always has a batch staged there, and readers are the
// host's; elsewhere prefetch can be given up.
Bytes least_data_bytes(const SearchRequest& request, std::span<const PhasePlan> phases);

// Sets data_bytes and the lever: one request is read ahead unless that is forbidden or would not fit. It costs bytes,
// saves waiting, and changes nothing else.
void choose_prefetch(const SearchRequest& request, Plan& plan);

}  // namespace plimsoll::engine
