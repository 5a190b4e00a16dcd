// The error if no plan fits: describes the smallest plan and what would make it fit.
#include "search/remedies.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

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

void describe(const Plan& plan, const SearchResult& limited, Remedy& remedy) {
  const double before = limited.unlevered_step_seconds();
  remedy.peak_bytes = plan.peak_bytes();
  remedy.step_seconds = plan.step_seconds;
  remedy.times = before > 0 ? plan.step_seconds / before : 0;
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

std::optional<Remedy> remedy_of(Freed freed, const std::string& flags, const SearchResult& limited) {
  Remedy remedy;
  remedy.flags = flags;
  remedy.leave_out = freed.without;
  auto found = search(freed.request);
  if (!found) return std::nullopt;
  if (!found->fits) {
    if (!on_device(freed.request, found->least_bytes) || in_mib(found->least_bytes) >= in_mib(limited.least_bytes))
      return std::nullopt;
    remedy.budget = in_mib(found->least_bytes) * kMiB;
    freed.request.budget = remedy.budget;
    found = search(freed.request);  // a budget of whole MiB may have room for a faster plan
    if (!found || !found->fits) return std::nullopt;
  }
  describe(found->plan, limited, remedy);
  return remedy;
}

namespace {

// A plan that takes longer than this, compared with a step without levers, is only proposed if nothing else fits.
constexpr double kMuchLonger = 1.5;
// How much larger than its live set a packed arena is expected to be.
constexpr double kPackingLoss = 1.02;

// Returns the result of a search with this budget.
std::optional<Remedy> larger_budget(const SearchRequest& request, const SearchResult& result, Bytes needed) {
  SearchRequest larger = request;
  larger.budget = in_mib(needed) * kMiB;
  larger.find_least = false;
  if (!on_device(request, needed)) return std::nullopt;
  const auto found = search(larger);
  if (!found || !found->fits) return std::nullopt;
  Remedy remedy;
  remedy.budget = larger.budget;
  describe(found->plan, result, remedy);
  return remedy;
}

// Returns about the smallest number of bytes that a plan needs that does not take much longer.
std::optional<Bytes> bytes_of_fast_plan(const SearchResult& result) {
  std::optional<Bytes> least;
  const auto add = [&](double seconds, Bytes bytes) {
    if (seconds <= kMuchLonger * result.unlevered_seconds) least = std::min(bytes, least.value_or(bytes));
  };
  for (const Candidate& candidate : result.candidates) add(candidate.seconds, candidate.peak_bytes);
  for (const PathPoint& point : result.path)
    add(point.seconds, static_cast<Bytes>(kPackingLoss * static_cast<double>(point.peak_bytes)));
  return least;
}

// Adds the budget of the smallest plan, and if that takes much longer, also a larger budget that saves time.
void add_budgets(const SearchRequest& request, const SearchResult& result, std::vector<Remedy>& list) {
  auto smallest = larger_budget(request, result, result.least_bytes);
  if (!smallest) return;
  smallest->what = "enough for the smallest plan";
  const bool is_slow = smallest->times > kMuchLonger;
  const Bytes budget = smallest->budget;
  list.push_back(std::move(*smallest));
  const auto faster = is_slow ? bytes_of_fast_plan(result) : std::nullopt;
  if (!faster || *faster <= budget) return;
  if (auto remedy = larger_budget(request, result, *faster); remedy && remedy->times < list.back().times)
    list.push_back(std::move(*remedy));
}

}  // namespace

std::vector<Remedy> remedies(const SearchRequest& request, const SearchResult& result) {
  std::vector<Remedy> list;
  add_budgets(request, result, list);
  for (const Lever& lever : *request.levers)
    if (lever.remedy != nullptr)
      if (auto remedy = lever.remedy(request, result)) list.push_back(std::move(*remedy));
  Freed freed(request);  // of --forbid, --allow, --micro-batch and --host-budget
  freed.free_micro_batch();
  freed.free_levers();
  if (!freed.without.empty())
    if (auto remedy = remedy_of(std::move(freed), "", result)) list.push_back(std::move(*remedy));
  return list;
}

std::string to_text(const Remedy& remedy) {
  std::vector<std::string> words;
  if (!remedy.flags.empty()) words.push_back(remedy.flags);
  if (remedy.budget > 0) words.push_back(fmt::format("--budget {}MiB", in_mib(remedy.budget)));
  std::string text = fmt::format("{}", fmt::join(words, " "));
  if (!remedy.leave_out.empty())
    text += fmt::format("{}leave {} out", text.empty() ? "" : ", and ", fmt::join(remedy.leave_out, ", "));
  std::vector<std::string> facts = {fmt::format("needs {}", format_bytes(remedy.peak_bytes))};
  if (remedy.times > 0) facts.push_back(fmt::format("{:.2f}x the time without levers", remedy.times));
  if (!remedy.changes.empty()) facts.push_back("changes " + remedy.changes);
  return fmt::format("{}   {}{}{}", text, remedy.what, remedy.what.empty() ? "" : ": ", fmt::join(facts, ", "));
}

Error shortage(const SearchRequest& request, const SearchResult& result) {
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
  if (!on_device(request, result.least_bytes))
    error.fact(
        fmt::format("{} has {}", request.device->info().name, format_bytes(request.device->info().memory_bytes)));
  return error;
}

Error does_not_fit(const SearchRequest& request, const SearchResult& result) {
  Error error = shortage(request, result);
  for (const Remedy& remedy : remedies(request, result)) error.remedy(to_text(remedy));
  return error;
}

}  // namespace plimsoll::engine
