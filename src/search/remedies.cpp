// The error if no plan fits: describes the smallest plan and what would make it fit.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "search/remedies.h"

namespace plimsoll::engine {
namespace {

// "at its peak (conv2d_weight_grad of conv1): conv1 3.1 GiB, conv2 1.0 GiB, everything else 3.5 GiB"
std::string peak_fact(const Plan& plan) {
  const PhasePlan* phase = peak_phase(plan);
  if (phase == nullptr || phase->nodes.empty()) return "";
  std::map<Bytes, std::pair<Bytes, std::string>> places;  // values that share a place count once
  for (size_t v = 0; v < phase->values.size(); ++v) {
    const Placement& place = phase->values[v];
    if (place.space != Space::kDevice || place.offset < plan.persistent_bytes || place.first > phase->peak_node ||
        place.last < phase->peak_node)
      continue;
    const Value& value = phase->graph.values[v];
    places.emplace(place.offset, std::make_pair(value.bytes(), value.layer.empty() ? value.name : value.layer));
  }
  std::vector<std::pair<Bytes, std::string>> values;
  for (const auto& [offset, value] : places) values.push_back(value);
  std::stable_sort(values.begin(), values.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  const Node& node = phase->graph.node(phase->peak_node);
  std::string text =
      fmt::format("at its peak ({} of {}): ", node.op, node.layer.empty() ? to_text(phase->name) : node.layer);
  Bytes others = phase->arena_bytes;
  for (size_t i = 0; i < values.size() && i < 2; ++i) {
    text += fmt::format("{} {}, ", values[i].second, format_bytes(values[i].first));
    others -= values[i].first;
  }
  return text + fmt::format("everything else {}", format_bytes(others));
}

Bytes in_mib(Bytes bytes) {
  return (bytes + kMiB - 1) / kMiB;
}

// Returns whether the device has that many bytes.
bool on_device(const SearchRequest& request, Bytes bytes) {
  const DeviceInfo& device = request.device->info();
  return !device.own_memory || bytes <= device.memory_bytes;
}

}  // namespace

void Freed::free_micro_batch() {
  if (!request.micro_batch) return;
  request.micro_batch.reset();
  without.emplace_back("--micro-batch");
}

void Freed::free_levers() {
  if (!request.forbidden.empty()) without.emplace_back("--forbid and --allow");
  if (request.host_budget_asked) without.emplace_back("--host-budget");
  request.forbidden.clear();
  if (request.host_budget_asked) request.host_budget = 0;
}

std::optional<std::string> remedy_words(const Freed& freed, const std::string& flags, const SearchResult& found,
                                        const SearchResult& limited) {
  std::vector<std::string> words;
  if (!flags.empty()) words.push_back(flags);
  if (!found.fits) {
    if (!on_device(freed.request, found.least_bytes) || in_mib(found.least_bytes) >= in_mib(limited.least_bytes))
      return std::nullopt;
    words.push_back(fmt::format("--budget {}MiB", in_mib(found.least_bytes)));
  }
  std::string text = fmt::format("{}", fmt::join(words, " "));
  if (!freed.without.empty())
    text += fmt::format("{}leave {} out", text.empty() ? "" : ", and ", fmt::join(freed.without, ", "));
  return text;
}

namespace {

// Adds the remedy of removing the user's limits: --forbid, --allow, --micro-batch and --host-budget.
void add_freedom_remedy(Freed freed, const SearchResult& result, Error& error) {
  freed.free_micro_batch();
  freed.free_levers();
  if (freed.without.empty()) return;
  const auto other = search(freed.request);
  if (!other || other->least_bytes >= result.least_bytes) return;
  if (const auto text = remedy_words(freed, "", *other, result))
    error.remedy(fmt::format("{}   needs {}", *text, format_bytes(other->least_bytes)));
}

}  // namespace

Error does_not_fit(const SearchRequest& request, const SearchResult& result) {
  Error error{ErrorCode::kDoesNotFit,
              request.batch > 0 ? fmt::format("this model does not fit in {} with batch {}",
                                              format_bytes(request.budget), request.batch)
                                : fmt::format("this model does not fit in {}", format_bytes(request.budget)),
              {},
              {}};
  error.fact(fmt::format("the smallest plan found needs {} ({} bytes), {} more than the budget",
                         format_bytes(result.least_bytes), result.least_bytes,
                         format_bytes(result.least_bytes - request.budget)));
  const Bytes held = request.data.held_before;
  error.fact(fmt::format("it consists of {} arena, {} overhead of the process, {} data buffers{}",
                         format_bytes(result.plan.arena_bytes), format_bytes(result.plan.overhead_at_peak()),
                         format_bytes(result.plan.data_bytes - held),
                         held > 0 ? fmt::format(", {} held by the program before the run", format_bytes(held)) : ""));
  if (result.plan.planning_bytes == result.plan.peak_bytes())
    error.fact(fmt::format("planning needs more memory than training: up to {} for the nodes of its graphs",
                           format_bytes(result.plan.planning_bytes)));
  if (const std::string peak = peak_fact(result.plan); !peak.empty()) error.fact(peak);
  if (request.batch > 0)
    error.fact(fmt::format("without levers the arena needs {} + {} per sample", format_bytes(result.fixed_bytes),
                           format_bytes(result.bytes_per_sample)));
  if (on_device(request, result.least_bytes))
    error.remedy(fmt::format("--budget {}MiB   enough for the smallest plan", in_mib(result.least_bytes)));
  else
    error.fact(
        fmt::format("{} has {}", request.device->info().name, format_bytes(request.device->info().memory_bytes)));
  for (const Lever& lever : *request.levers)
    if (lever.add_remedy != nullptr) lever.add_remedy(request, result, error);
  add_freedom_remedy(Freed(request), result, error);
  return error;
}

}  // namespace plimsoll::engine
