// Each remedy is planned as the command that it proposes would plan it.
#include <fmt/format.h>

#include <algorithm>

#include "api/model_changes.h"
#include "backends/cuda/cuda.h"
#include "levers/split_batch.h"
#include "plan/recompute.h"
#include "search/lever_table.h"

namespace plimsoll::engine {
namespace {

Bytes in_mib(Bytes bytes) {
  return (bytes + kMiB - 1) / kMiB;
}

class Remedies {
 public:
  Remedies(const Pricing& pricing, const Priced& now, const AdviceRequest& request)
      : pricing_(pricing), run_(pricing.run()), now_(now), request_(request), base_(pricing.options()) {}

  std::vector<PricedRemedy> make() {
    add_budget();
    add_levers();
    add_freedom();
    add_others_memory();
    add_larger_card();
    add_validation();
    add_precision();
    add_batchnorm();
    add_batch();
    add_optimizer();
    if (request_.changed_models) {
      for (const auto& change : {half_input(pricing_, base_), half_filters(pricing_, base_),
                                 smaller_kernels(pricing_, base_), without_a_layer(pricing_, base_)})
        if (change) add_changed_model(change->name, change->flags, change->options, change->note);
    }
    sort();
    return std::move(list_);
  }

 private:
  // ---- What adding a remedy needs

  void add(const std::string& name, const std::vector<TypedFlag>& flags, const Priced& price, Effect effect,
           const std::string& note = "") {
    std::vector<TypedFlag> typed = flags;
    // A command with --batch-size auto would choose another batch.
    if (run_.options().automatic_batch && find(flags, "--batch-size") == nullptr)
      typed.insert(typed.begin(), {"--batch-size", fmt::format("{}", base_.batch_size)});
    const double before = now_.seconds_per_sample();
    list_.push_back({name, flags_text(typed), note, price.fits, price.peak_bytes, now_.peak_bytes - price.peak_bytes,
                     before > 0 ? price.seconds_per_sample() / before : 1, effect});
  }

  static const TypedFlag* find(const std::vector<TypedFlag>& flags, const std::string& name) {
    const auto found = std::find_if(flags.begin(), flags.end(), [&](const auto& flag) { return flag.first == name; });
    return found == flags.end() ? nullptr : &*found;
  }
  bool typed(const char* flag) const { return find(request_.flags, flag) != nullptr; }
  bool large() const { return takes_long_to_plan(run_.found().plan); }
  bool on_device(Bytes bytes) const { return !run_.device().own_memory || bytes <= run_.device().memory_bytes; }

  void add_changed_model(const std::string& name, const std::vector<TypedFlag>& flags, const RunOptions& options,
                         const std::string& note) {
    const auto model = pricing_.changed_model(options);
    if (!model) return;
    if (const auto price = pricing_.price(options, false, &*model)) add(name, flags, *price, Effect::kTraining, note);
  }

  // ---- The remedies

  // Without a plan that fits: the budget of the smallest plan. With one that takes time to save memory: the budget of
  // the fastest plan.
  void add_budget() {
    RunOptions options = base_;
    Bytes budget = run_.found().least_bytes;
    const bool fastest = now_.fits || large();
    if (fastest) {
      options.budget = 0;
      const auto free = pricing_.price(options);
      if (!free || (now_.fits && free->step_seconds >= now_.step_seconds)) return;
      budget = free->peak_bytes;
    }
    if (!on_device(budget)) return;
    options.budget = in_mib(budget) * kMiB;
    if (const auto price = pricing_.price(options); price && price->fits)
      add(fastest ? "larger budget: no time spent to save memory" : "larger budget: the smallest plan",
          {{"--budget", fmt::format("{}MiB", in_mib(budget))}}, *price, Effect::kBitwise);
  }

  // How little one lever alone needs, and at which price.
  void add_lever(std::string_view lever, const std::string& name, Effect effect) {
    RunOptions options = base_;
    for (const std::string& other : searched_levers())
      if (other != lever && other != "prefetch") options.forbidden.insert(other);
    options.budget = 0;
    const auto least = pricing_.price(options, true);
    if (!least || in_mib(least->least_bytes) * kMiB >= now_.peak_bytes) return;
    options.budget = in_mib(least->least_bytes) * kMiB;
    const auto price = pricing_.price(options);
    if (price && price->fits)
      add(name,
          {{"--allow", fmt::format("{},prefetch", lever)},
           {"--budget", fmt::format("{}MiB", in_mib(least->least_bytes))}},
          *price, effect);
  }

  void add_levers() {
    // If no plan fits, the smallest plan already uses all of them.
    if (!now_.fits || typed("--allow") || typed("--forbid") || typed("--micro-batch") || large()) return;
    add_lever(kMicroBatch, "gradient accumulation, smallest pieces", Effect::kRounding);
    add_lever(kRecompute, "gradient checkpointing, as much as it saves", Effect::kBitwise);
    if (run_.planned_device().host_bytes_per_second() > 0)
      add_lever(kOffload, "offload to the host's memory", Effect::kBitwise);
  }

  // What the user's own limits cost.
  void add_freedom() {
    RunOptions options = base_;
    std::vector<std::string> without;
    if (typed("--forbid")) without.emplace_back("--forbid");
    if (typed("--allow")) without.emplace_back("--allow");
    if (options.micro_batch) without.emplace_back("--micro-batch");
    if (options.host_budget) without.emplace_back("--host-budget");
    if (without.empty()) return;
    options.forbidden.clear();
    options.micro_batch.reset();
    options.host_budget.reset();
    const auto price = pricing_.price(options);
    if (price && price->peak_bytes < now_.peak_bytes)
      add("fewer limits", {}, *price, Effect::kRounding, fmt::format("leave out {}", fmt::join(without, ", ")));
  }

  // Memory of this machine that other programs hold, if it decides the budget.
  void add_others_memory() {
    const DeviceInfo& device = run_.device();
    if (base_.budget || device.free_bytes >= device.memory_bytes || run_.budget().margin == 0) return;
    if (now_.fits && now_.levers.empty()) return;
    RunOptions options = base_;
    options.budget = in_mib(device.memory_bytes - run_.budget().margin) * kMiB;
    if (const auto price = pricing_.price(options))
      add("close other programs", {{"--budget", fmt::format("{}MiB", *options.budget / kMiB)}}, *price,
          Effect::kBitwise, fmt::format("they hold {}", format_bytes(device.memory_bytes - device.free_bytes)));
  }

  void add_larger_card() {
    const DeviceInfo& device = run_.device();
    if (!device.own_memory || base_.budget || (now_.fits && now_.levers.empty())) return;
    std::vector<cuda::Card> cards = cuda::card_profiles();
    std::stable_sort(cards.begin(), cards.end(),
                     [](const auto& a, const auto& b) { return a.memory_bytes < b.memory_bytes; });
    for (const cuda::Card& card : cards) {
      if (card.memory_bytes <= device.memory_bytes || card.memory_bytes < run_.found().least_bytes) continue;
      RunOptions options = base_;
      options.device = card.profile;
      const auto price = pricing_.price_elsewhere(options);
      if (!price || !price->fits) continue;
      add(fmt::format("larger card: {}", card.name), {{"--device", card.profile}}, *price, Effect::kBitwise);
      return;
    }
  }

  // Evaluation runs in pieces that need no more memory than training, so this saves nothing, and says so.
  void add_validation() {
    const auto& data = base_.data;
    const int64_t batch = data.validation_batch > 0 ? data.validation_batch : base_.batch_size;
    if (!run_.data().outline.validates || batch < 2) return;
    RunOptions options = base_;
    options.data.validation_batch = batch / 2;
    if (const auto price = pricing_.price(options))
      add("smaller validation batch", {{"--validation-batch-size", fmt::format("{}", batch / 2)}}, *price,
          Effect::kBitwise, "validation never needs more than training here");
  }

  void add_precision() {
    if (run_.request().graph.precision != Precision()) return;
    RunOptions options = base_;
    for (const auto& [precision, scale] : {std::pair{"mixed_bfloat16", false}, std::pair{"mixed_float16", true}}) {
      options.precision = precision;
      options.overrides.scale_loss = scale;
      const auto price = pricing_.price_elsewhere(options);
      if (!price) continue;
      add("half precision", {{"--precision", precision}}, *price, Effect::kTraining);
      return;
    }
  }

  void add_batchnorm() {
    if (base_.per_micro_batch_norm || !run_.model().couples_samples() || base_.batch_size < 2) return;
    RunOptions options = base_;
    options.per_micro_batch_norm = true;
    const auto price = pricing_.price(options);
    if (price && (price->peak_bytes < now_.peak_bytes || price->step_seconds < now_.step_seconds))
      add("BatchNormalization statistics per piece of the batch", {{"--batchnorm", "per-micro-batch"}}, *price,
          Effect::kTraining);
  }

  // The largest power of two that fits, or half of a batch that fits.
  void add_batch() {
    if (base_.batch_size < 2 || base_.micro_batch) return;
    RunOptions options = base_;
    options.batch_size =
        now_.fits ? base_.batch_size / 2 : pricing_.largest_batch_that_fits(base_, base_.batch_size - 1).value_or(0);
    if (options.batch_size == 0) options.batch_size = 1;
    if (const auto price = pricing_.price(options))
      add("smaller batch", {{"--batch-size", fmt::format("{}", options.batch_size)}}, *price, Effect::kTraining);
  }

  void add_optimizer() {
    Bytes state = 0;
    for (const PersistentSlot& slot : run_.found().plan.persistent)
      if (slot.category == Category::kOptimizer) state += slot.bytes();
    if (state * 20 < now_.peak_bytes || typed("--optimizer")) return;
    RunOptions options = base_;
    options.overrides.optimizer = "sgd";
    options.overrides.learning_rate.reset();
    add_changed_model("an optimizer without state", {{"--optimizer", "sgd"}}, options,
                      "SGD needs other learning rates");
  }

  // What fits first; then what changes least; then what is fastest. Of what does not fit, the smallest first.
  void sort() {
    const auto key = [](const PricedRemedy& remedy) {
      return std::tuple(!remedy.fits, remedy.fits ? remedy.effect : Effect::kBitwise,
                        remedy.fits ? remedy.step_ratio : static_cast<double>(remedy.peak_bytes));
    };
    std::stable_sort(list_.begin(), list_.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
  }

  const Pricing& pricing_;
  const Run& run_;
  const Priced now_;
  const AdviceRequest& request_;
  const RunOptions base_;
  std::vector<PricedRemedy> list_;
};

}  // namespace

std::vector<PricedRemedy> price_remedies(const Pricing& pricing, const Priced& now, const AdviceRequest& request) {
  return Remedies(pricing, now, request).make();
}

}  // namespace plimsoll::engine
