#include "report/trace.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "report/bands.h"

namespace plimsoll::engine {
namespace {

// Threads of the trace.
constexpr int kStepsRow = 1, kNodesRow = 2, kDataRow = 3;

Bytes bytes_moved(const Graph& graph, const Node& node) {
  Bytes bytes = 0;
  for (const ValueId id : node.inputs) bytes += graph.value(id).bytes();
  for (const ValueId id : node.outputs) bytes += graph.value(id).bytes();
  return bytes;
}

nlohmann::json slice(const std::string& name, const char* category, int row, double begin, double end) {
  return json_object({{"name", name},
                      {"cat", category},
                      {"ph", "X"},
                      {"pid", 1},
                      {"tid", row},
                      {"ts", begin},
                      {"dur", std::max(0.0, end - begin)}});
}

nlohmann::json row_name(int row, const char* name) {
  return json_object(
      {{"name", "thread_name"}, {"ph", "M"}, {"pid", 1}, {"tid", row}, {"args", json_object({{"name", name}})}});
}

nlohmann::json counter(double at, Bytes bytes) {
  return json_object(
      {{"name", "arena bytes in use"}, {"ph", "C"}, {"pid", 1}, {"ts", at}, {"args", json_object({{"bytes", bytes}})}});
}

}  // namespace

void Trace::begin(int64_t steps_made) {
  if (steps_made + 1 >= range_.first && steps_made + 1 <= range_.last) start();
}

void Trace::on_step(int64_t step) {
  if (watching_) steps_.push_back({step, step_began_, now()});
  if (step >= range_.last) return stop();
  if (step + 1 >= range_.first && !watching_) start();
  step_began_ = now();
}

void Trace::on_read(double seconds) {
  if (!watching_) return;
  const double end = now();
  reads_.push_back({0, end - seconds * 1e6, end});
}

void Trace::start() {
  watching_ = true;
  step_began_ = now();
  Probe(session_).watch([this](const PhasePlan& phase, size_t node, bool done, std::byte*) {
    if (!done) {
      node_began_ = now();
      return;
    }
    nodes_.push_back({&phase, node, node_began_, now()});
  });
}

void Trace::stop() {
  if (watching_) Probe(session_).watch({});
  watching_ = false;
}

nlohmann::json Trace::json() const {
  nlohmann::json events = nlohmann::json::array();
  events.push_back(json_object({{"name", "process_name"},
                                {"ph", "M"},
                                {"pid", 1},
                                {"args", json_object({{"name", "plimsoll " + session_.plan().model}})}}));
  events.push_back(row_name(kStepsRow, "steps"));
  events.push_back(row_name(kNodesRow, "nodes"));
  events.push_back(row_name(kDataRow, "waiting for data"));
  for (const Span& step : steps_)
    events.push_back(slice(fmt::format("step {}", step.step), "step", kStepsRow, step.begin, step.end));
  for (const Span& read : reads_) events.push_back(slice("read", "data", kDataRow, read.begin, read.end));
  std::map<const PhasePlan*, std::vector<Bytes>> live;
  const Bytes persistent = session_.plan().persistent_bytes;
  for (const Ran& ran : nodes_) {
    const Node& node = ran.phase->graph.nodes[ran.node];
    const PlannedNode& planned = ran.phase->nodes[ran.node];
    auto& bytes = live[ran.phase];
    if (bytes.empty()) bytes = live_bytes(*ran.phase, persistent);
    nlohmann::json event = slice(node.layer.empty() ? node.op : node.layer + " " + node.op,
                                 node.op == "reorder" ? "copy" : "node", kNodesRow, ran.begin, ran.end);
    event["args"] = json_object({{"layer", node.layer},
                                 {"op", node.op},
                                 {"kernel", planned.kernel},
                                 {"phase", to_text(ran.phase->name)},
                                 {"bytes", bytes_moved(ran.phase->graph, node)},
                                 {"workspace_bytes", planned.workspace_bytes},
                                 {"predicted_us", planned.seconds * 1e6}});
    events.push_back(std::move(event));
    events.push_back(counter(ran.begin, bytes[ran.node]));
  }
  if (!nodes_.empty()) events.push_back(counter(nodes_.back().end, persistent));
  return json_object({{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}});
}

}  // namespace plimsoll::engine
