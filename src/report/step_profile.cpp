#include "report/step_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/json.h"
#include "report/text_table.h"

namespace plimsoll::engine {
namespace {

constexpr size_t kMostRows = 16;
constexpr double kFar = 4, kShare = 0.01;  // as in the plan's lines about slow kernels

struct Sum {
  std::string name;
  double seconds = 0, predicted = 0;
  int64_t nodes = 0;
};

template <typename Name>
std::vector<Sum> sums_by(const StepProfile& profile, const Name& name) {
  std::map<std::string, Sum> by_name;
  for (const NodeTime& node : profile.nodes) {
    Sum& sum = by_name[name(node)];
    sum.seconds += node.seconds;
    sum.predicted += node.predicted;
    ++sum.nodes;
  }
  std::vector<Sum> sums;
  for (auto& [key, sum] : by_name) sums.push_back({key, sum.seconds, sum.predicted, sum.nodes});
  std::stable_sort(sums.begin(), sums.end(), [](const Sum& a, const Sum& b) { return a.seconds > b.seconds; });
  return sums;
}

std::string layer_of(const NodeTime& node) {
  return node.layer.empty() ? "(no layer)" : node.layer;
}

std::string kind_of(const NodeTime& node) {
  return node.op;
}

double total(const StepProfile& profile) {
  double seconds = 0;
  for (const NodeTime& node : profile.nodes) seconds += node.seconds;
  return std::max(seconds, 1e-12);
}

std::string sums_text(const char* heading, const std::vector<Sum>& sums, double all) {
  std::string text = fmt::format("{:>6}  {:>10}  {:>10}  {}\n", "share", "ms", "predicted", heading);
  for (size_t i = 0; i < sums.size() && i < kMostRows; ++i)
    text += fmt::format("{:>5.1f}%  {:>10.3f}  {:>10.3f}  {}\n", 100 * sums[i].seconds / all, sums[i].seconds * 1e3,
                        sums[i].predicted * 1e3, sums[i].name);
  if (sums.size() > kMostRows) text += fmt::format("  ... and {} more\n", sums.size() - kMostRows);
  return text + "\n";
}

bool is_far(const NodeTime& node, double all) {
  return node.limit > 0 && node.seconds > kFar * node.limit && node.seconds > kShare * all;
}

nlohmann::ordered_json sums_json(const std::vector<Sum>& sums) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Sum& sum : sums)
    list.push_back(ordered_object(
        {{"name", sum.name}, {"seconds", sum.seconds}, {"predicted_seconds", sum.predicted}, {"nodes", sum.nodes}}));
  return list;
}

}  // namespace

std::string step_profile_text(const StepProfile& profile) {
  const double all = total(profile);
  std::string text = wrapped(fmt::format("{} on {}, batch {}: a step took {:.3f} ms (mean of {}), predicted {:.3f} ms",
                                         profile.model, profile.device, profile.batch, profile.seconds * 1e3,
                                         profile.steps, profile.predicted * 1e3));
  if (profile.alone)
    text +=
        wrapped(fmt::format("The tables have each kernel by itself, the mean of 10 runs in a row; together {:.3f} "
                            "ms. A step runs as one recording.",
                            all * 1e3));
  text += "\n";
  text += sums_text("layer", sums_by(profile, layer_of), all) + sums_text("kind", sums_by(profile, kind_of), all);
  size_t far = 0;
  for (const NodeTime& node : profile.nodes) {
    if (!is_far(node, all)) continue;
    if (far++ == 0) text += "far from what the device's memory and arithmetic allow\n";
    if (far > kMostRows) continue;
    text +=
        fmt::format("  {} of {} ({}, {}): {:.3f} ms, {:.0f} times the roofline's {:.3f} ms\n", node.op, layer_of(node),
                    node.phase, node.kernel, node.seconds * 1e3, node.seconds / node.limit, node.limit * 1e3);
  }
  if (far == 0) text += "no node that takes 1 % of the step is far from what the device allows\n";
  return text;
}

nlohmann::ordered_json step_profile_json(const StepProfile& profile) {
  nlohmann::ordered_json nodes = nlohmann::ordered_json::array();
  for (const NodeTime& node : profile.nodes) {
    nlohmann::ordered_json one = ordered_object({{"phase", node.phase},
                                                 {"layer", node.layer},
                                                 {"op", node.op},
                                                 {"kernel", node.kernel},
                                                 {"runs", node.runs},
                                                 {"bytes", node.bytes},
                                                 {"seconds", node.seconds},
                                                 {"predicted_seconds", node.predicted}});
    if (node.limit > 0) one["roofline_seconds"] = node.limit;
    nodes.push_back(std::move(one));
  }
  return ordered_object({{"schema", "plimsoll.profile/1"},
                         {"model", profile.model},
                         {"device", profile.device},
                         {"batch", profile.batch},
                         {"steps", profile.steps},
                         {"step_seconds", profile.seconds},
                         {"predicted_step_seconds", profile.predicted},
                         {"kernels_alone", profile.alone},
                         {"layers", sums_json(sums_by(profile, layer_of))},
                         {"kinds", sums_json(sums_by(profile, kind_of))},
                         {"nodes", nodes}});
}

}  // namespace plimsoll::engine
