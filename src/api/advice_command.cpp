// The command to type next: `fit` with the same flags if the plan fits, else with the flags that change the training
// least and make it fit.
#include <fmt/format.h>

#include <bit>

#include "api/builtin.h"
#include "api/model_changes.h"

namespace plimsoll::engine {
namespace {

Bytes in_mib(Bytes bytes) {
  return (bytes + kMiB - 1) / kMiB;
}

// Flags of `plan` that change the model, or that choose what is printed.
bool only_for_plan(const std::string& flag) {
  for (const char* name : {"--scale-filters", "--max-kernel", "--without-layer", "--max-batch"})
    if (flag == name) return true;
  return false;
}

class Combination {
 public:
  Combination(const Pricing& pricing, const Priced& now, const AdviceRequest& request, Advice& advice)
      : pricing_(pricing), run_(pricing.run()), now_(now), request_(request), advice_(advice) {}

  void choose() {
    if (now_.fits) return write({}, pricing_.options(), "", now_);
    if (try_flags() || try_batches() || (request_.changed_models && try_smaller_models())) return;
    const Bytes least = run_.found().least_bytes;
    if (run_.device().own_memory && least > run_.device().memory_bytes) return;
    RunOptions options = pricing_.options();
    if (takes_long_to_plan(run_.found().plan)) {
      options.budget = 0;
      const auto free = pricing_.price(options);
      if (!free) return;
      options.budget = in_mib(free->peak_bytes) * kMiB;
    } else {
      options.budget = in_mib(least) * kMiB;
    }
    if (const auto price = pricing_.price(options); price && price->fits)
      write({{"--budget", fmt::format("{}MiB", *options.budget / kMiB)}}, options,
            "no flags keep this model within the budget that was asked for", *price);
  }

 private:
  struct Step {
    std::vector<TypedFlag> flags;
    RunOptions options;
    bool elsewhere = false;  // another precision
  };

  // The combinations of flags that keep the batch, those that change least first.
  std::vector<Step> steps() const {
    std::vector<Step> list = {{{}, pricing_.options(), false}};
    const RunOptions& own = list[0].options;
    if (run_.request().graph.precision == Precision() && advice_.precisions.size() > 1) {
      Step half = list[0];
      half.options.precision = advice_.precisions[1].precision;
      half.options.overrides.scale_loss = half.options.precision == "mixed_float16";
      half.flags.emplace_back("--precision", half.options.precision);
      half.elsewhere = true;
      list.push_back(half);
    }
    if (run_.model().couples_samples() && !own.per_micro_batch_norm && own.batch_size > 1) {
      const size_t count = list.size();
      for (size_t i = 0; i < count; ++i) {
        Step step = list[i];
        step.options.per_micro_batch_norm = true;
        step.flags.emplace_back("--batchnorm", "per-micro-batch");
        list.push_back(step);
      }
    }
    return list;
  }

  Result<Priced> price(const Step& step) const {
    return step.elsewhere ? pricing_.price_elsewhere(step.options) : pricing_.price(step.options);
  }

  bool try_flags() {
    const std::vector<Step> list = steps();
    for (size_t i = 1; i < list.size(); ++i)
      if (const auto found = price(list[i]); found && found->fits) {
        write(list[i].flags, list[i].options, "changes training", *found);
        return true;
      }
    return false;
  }

  // The largest power of two that fits, alone or with the strongest of the flags.
  bool try_batches() {
    const std::vector<Step> list = steps();
    for (Step step : list) {
      if (step.options.batch_size < 2 || step.options.micro_batch) continue;
      std::optional<PlanningDevice> device;
      std::optional<Model> model;
      if (step.elsewhere) {
        auto opened = pricing_.device(step.options);
        auto changed = pricing_.changed_model(step.options);
        if (!opened || !changed) continue;
        device = std::move(*opened);
        model = std::move(*changed);
      }
      const auto largest = pricing_.largest_batch_that_fits(step.options, step.options.batch_size - 1,
                                                            model ? &*model : nullptr, device ? &*device : nullptr);
      if (!largest || *largest == 0) continue;
      step.options.batch_size = *largest;
      step.flags.emplace_back("--batch-size", fmt::format("{}", *largest));
      const auto found = price(step);
      if (!found || !found->fits) continue;
      write(step.flags, step.options, "changes training", *found);
      return true;
    }
    return false;
  }

  // A smaller model: one change if one is enough, else the resolution and the filters halved until they suffice. With
  // the batch of the run if that fits, else sample by sample.
  bool try_smaller_models() {
    RunOptions base = pricing_.options();
    base.micro_batch.reset();
    std::vector<ModelChange> changes;
    for (const auto make : {smaller_kernels, without_a_layer, half_input, half_filters})
      if (const auto change = make(pricing_, base)) changes.push_back(*change);
    constexpr int kMostHalvings = 8;
    for (int halvings = 1; halvings <= kMostHalvings && !changes.empty(); ++halvings) {
      for (const int64_t batch : {base.batch_size, int64_t{1}})
        for (const ModelChange& change : changes)
          if (try_model(change, batch)) return true;
      changes = halved_model(base, halvings + 1);
    }
    return false;
  }

  // The model whose resolution and filters are halved `times` times in turn; none if that is no smaller model.
  std::vector<ModelChange> halved_model(const RunOptions& base, int times) const {
    constexpr int64_t kLeastSize = 8;
    ModelChange all{"", "", {}, base};
    for (int i = 0; i < times; ++i) {
      std::optional<ModelChange> next;
      if (i % 2 == 0) next = half_input(pricing_, all.options);
      if (!next || next->options.what_if.input_shape[0] < kLeastSize) next = half_filters(pricing_, all.options);
      if (!next) return {};
      next->flags = with_changes(all.flags, next->flags);
      all = *next;
    }
    return {all};
  }

  bool try_model(const ModelChange& change, int64_t batch) {
    RunOptions options = change.options;
    options.batch_size = batch;
    const auto model = pricing_.changed_model(options);
    if (!model) return false;
    const auto found = pricing_.price(options, false, &*model);
    if (!found || !found->fits) return false;
    std::vector<TypedFlag> flags = change.flags;
    if (batch != pricing_.options().batch_size) flags.emplace_back("--batch-size", fmt::format("{}", batch));
    write(flags, options,
          flags.size() > change.flags.size() ? "changes the model and the training" : "changes the model", *found);
    return true;
  }

  // An input shape is also what fills a shape that the model does not declare, which `fit` takes.
  bool changes_model(const WhatIf& what_if) const {
    WhatIf others = what_if;
    others.input_shape.clear();
    if (others.any() || what_if.input_shape.empty()) return others.any();
    std::vector<int64_t> declared;
    if (const auto builtin = builtin_model(run_.options().model))
      declared = declared_input(*builtin);
    else if (auto archive = open_keras(run_.options().model))
      declared = declared_input({std::move(archive->config), nlohmann::json()});
    return !declared.empty() && declared != what_if.input_shape;
  }

  void write(const std::vector<TypedFlag>& changes, const RunOptions& options, const std::string& note,
             const Priced& price) {
    std::vector<TypedFlag> flags = with_changes(request_.flags, changes);
    // A range of batches, or `auto`, becomes the batch of this plan.
    for (auto& [name, value] : flags)
      if (name == "--batch-size") value = fmt::format("{}", options.batch_size);
    if (!options.micro_batch) std::erase_if(flags, [](const TypedFlag& flag) { return flag.first == "--micro-batch"; });
    // A model that is only planned for: the user has to make the same change before it can train.
    const bool changed = changes_model(options.what_if), plans_only = changed && !now_.fits;
    if (!plans_only) {
      std::erase_if(flags, [&](const TypedFlag& flag) {
        return only_for_plan(flag.first) || (changed && flag.first == "--input-shape");
      });
      for (auto& [name, value] : flags)
        if (name == "--device" && run_.device().own_memory) value = "gpu";
      const auto has = [&](const char* name) {
        return std::any_of(flags.begin(), flags.end(), [&](const TypedFlag& flag) { return flag.first == name; });
      };
      if (!has("--data")) flags.emplace_back("--data", "x.npy,y.npy");
      flags.emplace_back("--save", "trained.keras");
    }
    advice_.command =
        fmt::format("plimsoll {} {} {}", plans_only ? "plan" : "fit",
                    flags_text({{changed && !plans_only ? "changed.keras" : request_.model, ""}}), flags_text(flags));
    advice_.command_note =
        changed && !plans_only ? "make this change in Keras and save the model as changed.keras" : note;
    advice_.command_peak_bytes = price.peak_bytes;
    advice_.command_changes = flags_text(changes);
  }

  const Pricing& pricing_;
  const Run& run_;
  const Priced& now_;
  const AdviceRequest& request_;
  Advice& advice_;
};

}  // namespace

void choose_command(const Pricing& pricing, const Priced& now, const AdviceRequest& request, Advice& advice) {
  Combination(pricing, now, request, advice).choose();
}

}  // namespace plimsoll::engine
