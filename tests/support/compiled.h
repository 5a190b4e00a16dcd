// Compiles plans with settings chosen by the test, without search.
#pragma once

#include <stdexcept>

#include "plan/offload.h"
#include "plan/recompute.h"
#include "search/compile.h"
#include "search/micro_batch.h"
#include "search/prefetch.h"

namespace plimsoll::engine::testing {

// Recomputes up to `recompute` percent: small models cannot always do without so much.
inline Plan compiled(const SearchRequest& request, int64_t micro, int64_t recompute = 0, int64_t offload_percent = 0) {
  for (; recompute >= 0; --recompute) {
    const LeverSettings settings = cut_into(request, micro).with(kRecompute, recompute).with(kOffload, offload_percent);
    std::optional<Plan> plan = require(compile(request, settings));
    if (plan) return std::move(*plan);
  }
  throw std::runtime_error("no plan reaches these settings");
}

}  // namespace plimsoll::engine::testing
