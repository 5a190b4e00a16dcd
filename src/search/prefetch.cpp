#include "search/prefetch.h"

#include <algorithm>

namespace plimsoll::engine {

Bytes staged_bytes(const SearchRequest& request, std::span<const PhasePlan> phases) {
  int64_t largest = 0;
  for (const PhasePlan& phase : phases) largest = std::max(largest, phase.samples);
  return align_up(request.data.per_sample * largest);
}

Bytes least_data_bytes(const SearchRequest& request, std::span<const PhasePlan> phases) {
  const DataDemand& data = request.data;
  const Bytes staged = staged_bytes(request, phases);
  if (request.device->info().own_memory) return data.held_before + (staged > 0 ? staged + data.padding : 0);
  return data.held_before + (data.reads_ahead ? data.fixed : 0);
}

void choose_prefetch(const SearchRequest& request, Plan& plan) {
  const Bytes least = least_data_bytes(request, plan.phases);
  plan.data_bytes = least;
  plan.settings.set(kPrefetch, 1);
  if (request.device->info().own_memory) return;
  const Bytes staged = request.data.reads_ahead ? staged_bytes(request, plan.phases) : 0;
  plan.data_bytes += staged;
  const bool too_much = request.budget > 0 && plan.peak_bytes() > request.budget;
  if (staged == 0 || too_much || request.forbids(kPrefetch)) {
    plan.settings.set(kPrefetch, 0);
    plan.data_bytes = least;
  }
}

}  // namespace plimsoll::engine
