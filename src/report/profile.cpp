#include "report/profile.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/slow_kernels.h"

namespace plimsoll::engine {
namespace {

constexpr size_t kMostRows = 40;

std::string describe(const PhasePlan& phase, size_t n) {
  const Node& node = phase.graph.nodes[n];
  std::string ops = node.op;
  if (node.body)
    for (const Node& member : node.body->nodes) ops += " " + member.op;
  return fmt::format("{} {} ({}) {}", to_text(phase.name), node.layer, ops, phase.nodes[n].kernel);
}

}  // namespace

void Profile::attach(Session& session) {
  Probe(session).watch([this](const PhasePlan& phase, size_t node, bool done, std::byte*) {
    const auto now = std::chrono::steady_clock::now();
    auto& times = phases_[&phase];
    times.resize(phase.nodes.size());
    if (!done) {
      started_ = std::chrono::steady_clock::now();
      return;
    }
    times[node].seconds += std::chrono::duration<double>(now - started_).count();
    ++times[node].runs;
  });
}

Status Profile::measure_alone(Session& session, int64_t steps) {
  constexpr int kRepeats = 10;
  const Plan& plan = session.plan();
  const int64_t rest = plan.batch.micro == 0 ? 0 : plan.batch.effective % plan.batch.micro;
  for (const PhasePlan& phase : plan.phases) {
    const PhaseKind kind = phase.name.kind;
    const bool window = plan.micro_batched() && (kind == PhaseKind::kBegin || kind == PhaseKind::kApply);
    const bool whole = kind == plan.gradient_phase() && phase.samples == plan.batch.micro;
    const bool tail = kind == PhaseKind::kAccumulate && plan.micro_batched() && rest > 0 && phase.samples == rest;
    if (!window && !whole && !tail) continue;
    PLIMSOLL_ASSIGN(const std::vector<double> seconds, Probe(session).measure_nodes(kind, phase.samples, kRepeats));
    const int64_t runs = steps * (whole ? plan.batch.effective / plan.batch.micro : 1);
    auto& times = phases_[&phase];
    times.resize(phase.nodes.size());
    for (size_t n = 0; n < seconds.size() && n < times.size(); ++n)
      times[n] = {seconds[n] * static_cast<double>(runs), runs};
  }
  return {};
}

std::string Profile::text() const {
  struct Row {
    double measured, predicted;
    double runs;
    std::string what;
  };
  std::vector<Row> rows;
  double measured = 0, predicted = 0;
  for (const auto& [phase, times] : phases_) {
    for (size_t n = 0; n < times.size(); ++n) {
      const auto runs = static_cast<double>(times[n].runs);
      rows.push_back({times[n].seconds, phase->nodes[n].seconds * runs, std::max(runs, 1.0), describe(*phase, n)});
      measured += rows.back().measured;
      predicted += rows.back().predicted;
    }
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.measured > b.measured; });
  std::string text = fmt::format("{:>6}  {:>9}  {:>9}  node\n", "share", "ms/run", "predicted");
  for (size_t i = 0; i < rows.size() && i < kMostRows; ++i)
    text += fmt::format("{:>5.1f}%  {:>9.3f}  {:>9.3f}  {}\n", 100 * rows[i].measured / measured,
                        rows[i].measured / rows[i].runs * 1e3, rows[i].predicted / rows[i].runs * 1e3, rows[i].what);
  return text + fmt::format("all nodes: {:.3f} s measured, {:.3f} s predicted\n", measured, predicted);
}

std::vector<NodeTime> Profile::per_step(int64_t steps, const DeviceInfo& device) const {
  std::vector<NodeTime> nodes;
  for (const auto& [phase, times] : phases_)
    for (size_t n = 0; n < times.size(); ++n) {
      const Node& node = phase->graph.nodes[n];
      const double runs = static_cast<double>(times[n].runs) / static_cast<double>(steps);
      NodeTime time;
      time.phase = to_text(phase->name);
      time.layer = node.layer;
      time.op = node.op;
      time.kernel = phase->nodes[n].kernel;
      time.seconds = times[n].seconds / static_cast<double>(steps);
      time.predicted = phase->nodes[n].seconds * runs;
      time.limit = roofline_seconds(phase->graph, node, device) * runs;
      time.runs = times[n].runs / steps;
      for (const ValueId id : node.inputs) time.bytes += phase->graph.value(id).bytes();
      for (const ValueId id : node.outputs) time.bytes += phase->graph.value(id).bytes();
      nodes.push_back(std::move(time));
    }
  std::stable_sort(nodes.begin(), nodes.end(),
                   [](const NodeTime& a, const NodeTime& b) { return a.seconds > b.seconds; });
  return nodes;
}

}  // namespace plimsoll::engine
