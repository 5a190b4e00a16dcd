// What to say where nothing fits: the smallest plan, and what would make it fit.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "search/search.h"

namespace plimsoll {
namespace {

// "at its peak (conv2d_weight_grad of conv1): conv1 3.1 GiB, conv2 1.0 GiB, everything else 3.5 GiB"
std::string peak_fact(const Plan& plan) {
  const PhasePlan* phase = peak_phase(plan);
  if (phase == nullptr || phase->nodes.empty()) return "";
  std::map<Bytes, std::pair<Bytes, std::string>> places;  // what shares a place counts once
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

// Whether a budget can be that large.
bool on_device(const SearchRequest& request, Bytes bytes) {
  const DeviceInfo& device = request.device->info();
  return !device.own_memory || bytes <= device.memory_bytes;
}

// A request with some of its limits gone, and the words for them.
struct Freed {
  SearchRequest request;
  std::vector<std::string> without;

  explicit Freed(const SearchRequest& limited) : request(limited) { request.find_least = true; }

  void free_cut() {
    if (!request.micro_batch) return;
    request.micro_batch.reset();
    without.emplace_back("--micro-batch");
  }
  void free_levers() {
    if (!request.forbidden.empty()) without.emplace_back("--forbid and --allow");
    if (request.host_budget_asked) without.emplace_back("--host-budget");
    request.forbidden.clear();
    if (request.host_budget_asked) request.host_budget = 0;
  }
};

// The flags and words of a remedy, with the budget that it needs besides; nothing where no such budget is smaller than
// the one that does without.
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

// Whether it is one.
bool add_batchnorm_remedy(Freed freed, const SearchResult& result, Error& error) {
  freed.request.per_micro_batch_norm = true;
  freed.free_cut();
  const auto other = search(freed.request);
  if (!other || other->least_bytes >= result.least_bytes) return false;
  const auto text = remedy_words(freed, "--batchnorm per-micro-batch", *other, result);
  if (text)
    error.remedy(fmt::format("{}   needs {}, changes training: statistics per micro-batch", *text,
                             format_bytes(other->least_bytes)));
  return text.has_value();
}

// The fastest plan in half precision that fits, or the smallest, where the device has it: bfloat16, or float16 with a
// loss scale.
void add_precision_remedy(const SearchRequest& request, const SearchResult& result, Error& error) {
  const DeviceInfo& device = request.device->info();
  if (device.kind != "gpu" || request.graph.precision != Precision()) return;
  Freed half(request);
  half.request.graph.precision.compute = device.has_bfloat16 ? DType::kBFloat16 : DType::kFloat16;
  const Model scaled = request.model->with_loss_scale();
  if (!device.has_bfloat16) half.request.model = &scaled;
  const auto other = search(half.request);
  if (!other || other->plan.peak_bytes() >= result.plan.peak_bytes()) return;
  const std::string training = request.batch > 0
                                   ? fmt::format("{:.2f}x the time of the smallest plan, changes training",
                                                 other->plan.step_seconds / result.plan.step_seconds)
                                   : "changes the results";
  if (const auto text = remedy_words(half, "--precision " + to_text(half.request.graph.precision), *other, result))
    error.remedy(
        fmt::format("{}   needs {}, {}: half precision", *text, format_bytes(other->plan.peak_bytes()), training));
}

// What the user forbade or fixed, if that is what is missing.
void add_freedom_remedy(Freed freed, const SearchResult& result, Error& error) {
  freed.free_cut();
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
  error.fact(fmt::format("of it {} arena, {} overhead of the process, {} data buffers{}",
                         format_bytes(result.plan.arena_bytes), format_bytes(result.plan.overhead_at_peak()),
                         format_bytes(result.plan.data_bytes - held),
                         held > 0 ? fmt::format(", {} held by the program before", format_bytes(held)) : ""));
  if (result.plan.planning_bytes == result.plan.peak_bytes())
    error.fact(fmt::format("planning holds more than training would: up to {} for the nodes of its graphs",
                           format_bytes(result.plan.planning_bytes)));
  if (const std::string peak = peak_fact(result.plan); !peak.empty()) error.fact(peak);
  if (request.batch > 0)
    error.fact(fmt::format("before any lever {} + {} per sample", format_bytes(result.fixed_bytes),
                           format_bytes(result.bytes_per_sample)));
  if (on_device(request, result.least_bytes))
    error.remedy(fmt::format("--budget {}MiB   what the smallest plan needs", in_mib(result.least_bytes)));
  else
    error.fact(
        fmt::format("{} has {}", request.device->info().name, format_bytes(request.device->info().memory_bytes)));
  if (request.batch > 1 && request.model->couples_samples() && !request.per_micro_batch_norm) {
    Freed freed(request);
    if (!add_batchnorm_remedy(freed, result, error)) {
      freed.free_levers();
      add_batchnorm_remedy(freed, result, error);
    }
  }
  add_precision_remedy(request, result, error);
  add_freedom_remedy(Freed(request), result, error);
  return error;
}

}  // namespace plimsoll
