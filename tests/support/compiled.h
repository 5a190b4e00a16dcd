// Compiles plans with settings chosen by the test, without search.
#pragma once

#include <stdexcept>

#include "plan/offload.h"
#include "search/compile.h"
#include "search/micro_batch.h"
#include "search/prefetch.h"
#include "search/recompute_levels.h"

namespace plimsoll::engine::testing {

inline Plan compiled(const SearchRequest& request, int64_t micro, int64_t recompute = 0, int64_t offload_percent = 0) {
  const LeverSettings settings = cut_into(request, micro).with(kRecompute, recompute).with(kOffload, offload_percent);
  std::optional<Plan> plan = require(compile(request, settings));
  if (!plan) throw std::runtime_error("no plan reaches these settings");
  return std::move(*plan);
}

}  // namespace plimsoll::engine::testing
