#include "search/prefetch.h"

#include <algorithm>

namespace plimsoll::engine {
namespace {

// One thread that reads samples of a file in the page cache into memory. Measured: 8 to 15 GB/s in pieces of 12 KiB to
// 1 MiB.
constexpr double kReadBytesPerSecond = 8e9;

int64_t largest_phase(std::span<const PhasePlan> phases) {
  int64_t samples = 0;
  for (const PhasePlan& phase : phases) samples = std::max(samples, phase.samples);
  return samples;
}

Bytes staged_bytes(const SearchRequest& request, int64_t samples) {
  return align_up(request.data.per_sample * samples);
}

}  // namespace

Bytes staged_bytes(const SearchRequest& request, std::span<const PhasePlan> phases) {
  return staged_bytes(request, largest_phase(phases));
}

Bytes least_data_bytes(const SearchRequest& request, int64_t samples) {
  const DataDemand& data = request.data;
  const Bytes staged = staged_bytes(request, samples);
  if (request.device->info().own_memory) return data.held_before + (staged > 0 ? staged + data.padding : 0);
  return data.held_before + data.readers + (data.reads_ahead ? data.fixed : 0);
}

Bytes least_data_bytes(const SearchRequest& request, std::span<const PhasePlan> phases) {
  return least_data_bytes(request, largest_phase(phases));
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

double input_seconds(const SearchRequest& request) {
  const double bytes = static_cast<double>(request.data.per_sample) * static_cast<double>(request.batch);
  const bool own_memory = request.device->info().own_memory;
  const double speed = own_memory                 ? request.device->host_bytes_per_second()
                       : request.data.reads_ahead ? kReadBytesPerSecond
                                                  : 0;
  return speed > 0 ? bytes / speed : 0;
}

void add_input_seconds(const SearchRequest& request, Plan& plan) {
  plan.input_seconds = rounded_seconds(input_seconds(request));
  const bool ahead = plan.settings.of(kPrefetch) != 0;
  plan.step_seconds = ahead ? std::max(plan.compute_seconds, plan.input_seconds)
                            : rounded_seconds(plan.compute_seconds + plan.input_seconds);
}

}  // namespace plimsoll::engine
