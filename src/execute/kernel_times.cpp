#include "execute/kernel_times.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "device/kernel_key.h"
#include "execute/probe.h"

namespace plimsoll::engine {
namespace {

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The lower quartile. Other programs can only slow a kernel down, and on an idle machine it is close to the median.
double typical_of(std::vector<double>& list) {
  if (list.empty()) return 0;
  const auto quartile = list.begin() + static_cast<ptrdiff_t>(list.size() / 4);
  std::nth_element(list.begin(), quartile, list.end());
  return *quartile;
}

// The times of each node of each phase, one per step.
using NodeTimes = std::map<const PhasePlan*, std::vector<std::vector<double>>>;

// Offloaded values move on other queues beside the computation, so their time is not that of a kernel.
bool is_timed(const Node& node) {
  return node.queue == Queue::kCompute && !node.op.starts_with("to_");
}

std::vector<KernelTime> kernels_of(const Device& device, NodeTimes& times) {
  struct Sum {
    double seconds = 0, offered = 0;
    int count = 0;
  };
  std::map<std::string, Sum> sums;
  for (auto& [phase, nodes] : times)
    for (size_t n = 0; n < nodes.size(); ++n) {
      const Node& node = phase->graph.nodes[n];
      if (!is_timed(node) || nodes[n].empty()) continue;
      const auto offer = device.offer(phase->graph, node);
      if (!offer || !(offer->seconds > 0)) continue;
      Sum& sum = sums[kernel_key(phase->graph, node, *offer, device.info().tf32)];
      sum.seconds += typical_of(nodes[n]);
      sum.offered = offer->seconds;
      ++sum.count;
    }
  std::vector<KernelTime> kernels;
  for (const auto& [key, sum] : sums) kernels.push_back({key, sum.seconds / sum.count, sum.offered});
  return kernels;
}

// On a device with a queue, a kernel runs several times in a row, because waiting for it takes time too.
Status time_in_rows(Session& session, NodeTimes& times) {
  constexpr int kRounds = 5, kRepeats = 10;
  for (const PhasePlan& phase : session.plan().phases) {
    if (phase.samples > 0 && phase.name.kind != session.plan().gradient_phase()) continue;
    auto& nodes = times[&phase];
    nodes.resize(phase.nodes.size());
    for (int round = 0; round < kRounds; ++round) {
      PLIMSOLL_ASSIGN(const std::vector<double> seconds,
                      Probe(session).measure_nodes(phase.name.kind, phase.samples, kRepeats));
      for (size_t n = 0; n < seconds.size(); ++n) nodes[n].push_back(seconds[n]);
    }
  }
  return {};
}

}  // namespace

Result<TimedStep> time_kernels(Session& session, const std::function<Status()>& step, const TimingOptions& options) {
  const std::function<double()> now = options.now ? options.now : steady_seconds;
  const bool in_rows = session.device().info().own_memory;
  for (int i = 0; i < options.warm_up_steps; ++i) PLIMSOLL_TRY(step());
  NodeTimes times;
  std::vector<double> steps;
  double started = 0;
  const Probe::Watch watch = [&](const PhasePlan& phase, size_t node, bool done, std::byte*) {
    if (!done) {
      started = now();
      return;
    }
    const double seconds = now() - started;
    auto& nodes = times[&phase];
    nodes.resize(phase.nodes.size());
    nodes[node].push_back(seconds);
  };
  const double begin = now();
  for (int i = 0; i < options.most_steps && (i < options.least_steps || now() - begin < options.seconds); ++i) {
    const double before = now();
    PLIMSOLL_TRY(step());
    steps.push_back(now() - before);
    if (in_rows) continue;
    Probe(session).watch(watch);
    const Status timed = step();
    Probe(session).watch({});
    PLIMSOLL_TRY(timed);
  }
  if (in_rows) PLIMSOLL_TRY(time_in_rows(session, times));
  const double least = steps.empty() ? 0 : *std::min_element(steps.begin(), steps.end());
  return TimedStep{kernels_of(session.device(), times), typical_of(steps), least};
}

}  // namespace plimsoll::engine
