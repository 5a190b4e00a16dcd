#include "api/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace plimsoll::engine {
namespace {

std::string quoted(const std::string& word) {
  const bool plain = !word.empty() && word.find_first_not_of(
                                          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                          "0123456789-_=+.,/:@%") == std::string::npos;
  if (plain) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

// The batches of the table: powers of two around the batch of the run.
std::vector<int64_t> batches_around(int64_t batch, int64_t samples, bool few) {
  std::set<int64_t> list = {batch};
  for (const int64_t part : {2, 4, 8})
    if (batch % part == 0 && (part == 2 || !few)) list.insert(batch / part);
  for (const int64_t times : {2, 4})
    if ((times == 2 || !few) && batch <= (int64_t{1} << 40) && (samples == 0 || batch * times <= samples))
      list.insert(batch * times);
  return {list.begin(), list.end()};
}

BatchPrice batch_price(const Priced& price, int64_t batch) {
  return {batch, price.micro, price.fits, price.peak_bytes, price.step_seconds, false};
}

void price_batches(const Pricing& pricing, const Priced& now, const AdviceRequest& request, Advice& advice) {
  RunOptions options = pricing.options();
  const int64_t own = options.batch_size, samples = pricing.run().data().outline.samples;
  std::vector<int64_t> list = request.batches.empty()
                                  ? batches_around(own, samples, takes_long_to_plan(pricing.run().found().plan))
                                  : request.batches;
  if (request.max_batch > 0) {
    const auto largest = pricing.largest_batch_that_fits(options, request.max_batch);
    if (largest && *largest > 0) list.push_back(*largest);
  }
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
  for (const int64_t batch : list) {
    if (batch == own) {
      advice.batches.push_back(batch_price(now, batch));
      advice.batches.back().asked = true;
      continue;
    }
    if (batch > own && !now.fits && request.batches.empty()) continue;  // a larger batch needs no less
    options.batch_size = batch;
    if (const auto price = pricing.price(options)) advice.batches.push_back(batch_price(*price, batch));
  }
}

void price_precisions(const Pricing& pricing, const Priced& now, Advice& advice) {
  const RunOptions own = pricing.options();
  for (const char* precision : {"float32", "mixed_bfloat16", "mixed_float16"}) {
    // One half precision is enough: bfloat16 where the device has it.
    const bool second = std::string_view(precision) == "mixed_float16" && advice.precisions.size() > 1;
    if (second && own.precision != precision) continue;
    if (own.precision == precision) {
      advice.precisions.push_back({precision, now.fits, now.peak_bytes, now.step_seconds});
      continue;
    }
    RunOptions options = own;
    options.precision = precision;
    options.overrides.scale_loss = std::string_view(precision) == "mixed_float16";
    if (const auto price = pricing.price_elsewhere(options))
      advice.precisions.push_back({precision, price->fits, price->peak_bytes, price->step_seconds});
  }
}

// Plans at budgets between the smallest plan and the plan without a budget.
void price_frontier(const Pricing& pricing, const Priced& now, Bytes least, Advice& advice) {
  constexpr int kPoints = 7;
  RunOptions options = pricing.options();
  options.budget = 0;
  const auto free = pricing.price(options);
  if (!free) return;
  std::vector<Priced> plans;
  std::vector<Bytes> budgets;
  const auto add = [&](Bytes budget) {
    options.budget = budget;
    const auto price = pricing.price(options);
    if (!price || !price->fits || (!plans.empty() && plans.back().peak_bytes == price->peak_bytes)) return;
    plans.push_back(*price);
    budgets.push_back(budget);
  };
  for (int i = 0; i < kPoints; ++i) add(least + (free->peak_bytes - least) * i / (kPoints - 1));
  if (now.fits) add(now.peak_bytes);
  for (size_t i = 0; i < plans.size(); ++i)
    advice.frontier.push_back({budgets[i], plans[i].peak_bytes, plans[i].step_seconds / free->step_seconds,
                               plans[i].levers, now.fits && plans[i].peak_bytes == now.peak_bytes});
  std::stable_sort(advice.frontier.begin(), advice.frontier.end(),
                   [](const FrontierPoint& a, const FrontierPoint& b) { return a.peak_bytes < b.peak_bytes; });
  advice.frontier.erase(std::unique(advice.frontier.begin(), advice.frontier.end(),
                                    [](const auto& a, const auto& b) { return a.peak_bytes == b.peak_bytes; }),
                        advice.frontier.end());
}

}  // namespace

bool takes_long_to_plan(const Plan& plan) {
  constexpr size_t kManyNodes = 400;
  size_t count = 0;
  for (const PhasePlan& phase : plan.phases) count += phase.nodes.size();
  return count > kManyNodes;
}

std::string flags_text(const std::vector<TypedFlag>& flags) {
  std::vector<std::string> words;
  for (const auto& [name, value] : flags) words.push_back(value.empty() ? name : name + " " + quoted(value));
  return fmt::format("{}", fmt::join(words, " "));
}

std::vector<TypedFlag> with_changes(std::vector<TypedFlag> flags, const std::vector<TypedFlag>& changes) {
  for (const TypedFlag& change : changes) {
    const auto same =
        std::find_if(flags.begin(), flags.end(), [&](const auto& one) { return one.first == change.first; });
    if (same != flags.end())
      same->second = change.second;
    else
      flags.push_back(change);
  }
  return flags;
}

Advice advise(Run& run, const AdviceRequest& request) {
  Advice advice;
  Pricing pricing(run);
  const SearchResult& found = run.found();
  advice.quick = takes_long_to_plan(found.plan);
  // To find that no plan fits takes longer than to find one that does.
  if (advice.quick) pricing.limit_searches(found.fits ? 4 : 1);
  const Priced now = priced(found);
  if (found.plan.batch.effective > 0) {
    const auto keras =
        estimate_keras(run.model(), found.plan.batch.effective, run.request().graph, run.planned_device().info());
    if (keras) advice.keras = *keras;
  }
  advice.epoch_samples = run.data().outline.samples;
  price_precisions(pricing, now, advice);
  if (request.batch_table) price_batches(pricing, now, request, advice);
  if (request.frontier) price_frontier(pricing, now, found.least_bytes, advice);
  advice.remedies = price_remedies(pricing, now, request);
  choose_command(pricing, now, request, advice);
  return advice;
}

std::vector<std::string> remedy_lines(const Advice& advice) {
  std::vector<std::string> lines;
  for (const PricedRemedy& remedy : advice.remedies)
    lines.push_back(fmt::format("{}   {}: needs {}{}, {:.2f}x the time per sample, {}",
                                remedy.flags.empty() ? remedy.note : remedy.flags, remedy.name,
                                format_bytes(remedy.peak_bytes), remedy.fits ? ", fits" : "", remedy.step_ratio,
                                words_of(remedy.effect)));
  return lines;
}

}  // namespace plimsoll::engine
