// plimsoll shrink prune: channels that matter least leave the model.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "api/planning_limit.h"
#include "base/json.h"
#include "cli/shrink.h"
#include "cli/shrink_ratio.h"
#include "cli/signals.h"

namespace plimsoll::engine {
namespace {

struct PruneFlags : ShrinkFlags {
  std::optional<double> ratio, multiplications;
  std::string target, importance = "magnitude", across = "group", multiple = "auto";
  bool free = false;
  int64_t batches = 8;

  int goals() const { return ratio.has_value() + multiplications.has_value() + !target.empty() + free; }
};

Status check_goals(const PruneFlags& flags) {
  if (flags.goals() == 1) return {};
  return fail(Error{ErrorCode::kUsage,
                    flags.goals() == 0 ? "nothing says how much is to leave the model"
                                       : "--ratio, --target, --multiplications and --free exclude each other",
                    {},
                    {"--ratio 0.5   half of the channels of each group", "--target 1MiB   the bytes of the file",
                     "--multiplications 0.5   half of the multiplications",
                     "--free   only channels that are constant: predictions stay"}});
}

Error not_reached(const std::string& what, const std::string& least) {
  return Error{ErrorCode::kDoesNotFit,
               fmt::format("{} cannot be reached by pruning", what),
               {fmt::format("the least that can: {}", least)},
               {"plimsoll shrink MODEL --target ...   also makes the input smaller",
                "plimsoll shrink resize --input-size N, --kernel N or --drop-layer NAME"}};
}

// The bytes of --target, or 0.
Result<Bytes> target_of(const PruneFlags& flags) {
  if (flags.target.empty()) return 0;
  auto bytes = parse_bytes(flags.target);
  if (!bytes) bytes.error().what = "--target: " + bytes.error().what;
  return bytes;
}

// The ratio that the flags ask for.
Result<double> ratio_of(const PruneFlags& flags, const Opened& opened, PruneSearch& search, Bytes target,
                        double all_multiplications) {
  if (flags.ratio) return *flags.ratio;
  if (flags.free) return 0;
  if (flags.multiplications) {
    const auto size = [](const HeldModel& made) { return multiplications(made.model); };
    PLIMSOLL_ASSIGN(const PruneSearch::Found found, search.find(*flags.multiplications * all_multiplications, size));
    if (found.ratio) return *found.ratio;
    return fail(not_reached(fmt::format("--multiplications {}", *flags.multiplications),
                            fmt::format("{:.3f} of them", found.least / all_multiplications)));
  }
  const auto size = [&](const HeldModel& made) { return Result<double>(estimated_bytes(opened, made)); };
  PLIMSOLL_ASSIGN(const PruneSearch::Found found, search.find(static_cast<double>(target), size));
  if (found.ratio) return *found.ratio;
  return fail(not_reached("--target " + flags.target,
                          format_bytes(static_cast<Bytes>(found.least)) + ", without the optimizer's state"));
}

class PruneCommand {
 public:
  explicit PruneCommand(PruneFlags& flags) : flags_(flags) {}

  Result<int> run() {
    PLIMSOLL_TRY(check_flags());
    PLIMSOLL_ASSIGN(target_, target_of(flags_));
    PLIMSOLL_ASSIGN(Opened opened, open_to_shrink(flags_));
    PLIMSOLL_ASSIGN(ShrinkPrice before, price_inside(flags_, opened.held, opened.source()));
    before.file = opened.bytes;
    PLIMSOLL_ASSIGN(choice_.multiple, multiple());
    Figures figures;
    const bool has_data = !flags_.options.data.data.empty();
    if (has_data && opened.held.has_weights) {
      PLIMSOLL_ASSIGN(figures.before, evaluate_file(flags_, flags_.options.model));
    }
    choice_.across = flags_.across == "model";
    choice_.only_free = flags_.free;
    // Each round removes a part of what the goal asks for, and trains what is left.
    const int64_t rounds = flags_.epochs > 0 ? flags_.rounds : 1;
    std::optional<ShrinkPrice> after;
    for (int64_t round = 1; round <= rounds; ++round) {
      if (round > 1) {
        PLIMSOLL_ASSIGN(opened, reopen());
      }
      PLIMSOLL_ASSIGN(const HeldModel made, cut_once(opened, before, round, rounds));
      PLIMSOLL_ASSIGN(after, price_inside(flags_, made, opened.source()));
      PLIMSOLL_ASSIGN(after->file, measured_bytes(made, opened.source(), flags_.output));
      PLIMSOLL_TRY(write_held(made, opened.source(), flags_.output));
      opened.held.values.clear();
      const int64_t epochs = (flags_.epochs + rounds - round) / rounds;  // they add up to --epochs
      if (epochs > 0) PLIMSOLL_TRY(train(epochs, round, rounds));
    }
    if (has_data && before.training) {
      PLIMSOLL_ASSIGN(figures.after, evaluate_file(flags_, flags_.output));
    }
    nothing_to_lose();
    auto more = ordered_object({{"groups", groups_json(groups_)}, {"not_folded", not_folded_}});
    return report_shrunk(flags_, before, *after, figures, std::move(more), groups_text(groups_));
  }

 private:
  Status check_flags() {
    PLIMSOLL_TRY(check_goals(flags_));
    if (flags_.importance == "loss" && flags_.options.data.data.empty())
      return fail(Error{ErrorCode::kUsage, "--importance loss needs --data", {}, {"--data x.npy,y.npy"}});
    if (flags_.rounds > 1 && flags_.epochs < flags_.rounds)
      return fail(Error{ErrorCode::kUsage,
                        fmt::format("--rounds {} needs at least as many --epochs", flags_.rounds),
                        {},
                        {fmt::format("--epochs {}", flags_.rounds)}});
    return {};
  }

  // The file of the last round.
  Result<Opened> reopen() {
    ShrinkFlags next = flags_;
    next.options.model = flags_.output;
    next.options.weights.clear();
    return open_to_shrink(next);
  }

  Result<int64_t> multiple() const {
    if (flags_.free) return 1;
    if (flags_.multiple != "auto") return *read_number<int64_t>(flags_.multiple);
    PLIMSOLL_ASSIGN(const auto backend, open_backend(flags_.options));
    return preferred_multiple(backend->device());
  }

  Result<HeldModel> cut_once(Opened& opened, const ShrinkPrice& before, int64_t round, int64_t rounds) {
    Effects effects;
    if (flags_.importance == "loss") {
      const std::string path = round > 1 ? flags_.output : flags_.options.model;
      PLIMSOLL_ASSIGN(effects, measure_effects(flags_, path, flags_.batches));
    }
    return within_limit(flags_.options, reading_limit(flags_.options), [&]() -> Result<HeldModel> {
      HeldModel& held = opened.held;
      PLIMSOLL_ASSIGN(const ChannelMap map, find_channels(held.description, held.model, false));
      const ChannelValues values = channel_values(held, map);
      PruneSearch search(held, map, values, scores(held, map, importance_of(flags_.importance), effects), choice_);
      PLIMSOLL_ASSIGN(double ratio, ratio_of_round(opened, search, map, before, round, rounds));
      for (;;) {
        const std::vector<bool> keep = search.keep(ratio);
        take_groups(group_reports(held.model, map, keep));
        const bool all = std::all_of(keep.begin(), keep.end(), [](bool one) { return one; });
        if (all && round == 1 && !(any_open(map) && (flags_.free || rounds > 1 || ratio == 0)))
          return fail(no_group_can_be_cut(groups_, goal_flag()));
        PLIMSOLL_ASSIGN(HeldModel made, cut(held, map, keep, true));
        // The estimate of the bytes may be a little too small: alignment depends on the sizes.
        PLIMSOLL_ASSIGN(const FileBytes bytes, measured_bytes(made, opened.source(), flags_.output));
        if (round == rounds && target_ > 0 && bytes.without_state > target_ && ratio < 0.99) {
          ratio += 0.01;
          search.forget_extra();
          continue;
        }
        if (all) return made;
        tell_left(fold_constants(held, map, values, keep));
        return cut(held, map, keep, true);
      }
    });
  }

  static bool any_open(const ChannelMap& map) {
    return std::any_of(map.groups.begin(), map.groups.end(),
                       [](const ChannelGroup& one) { return one.locked.empty(); });
  }

  // What stays after round r of R is the R-th root, r times, of what stays at the end.
  Result<double> ratio_of_round(const Opened& opened, PruneSearch& search, const ChannelMap& map,
                                const ShrinkPrice& before, int64_t round, int64_t rounds) {
    if (!any_open(map)) return 0;
    if (round > 1 && final_ratio_) return 1 - std::pow(1 - *final_ratio_, 1.0 / static_cast<double>(rounds));
    if (round > 1) return 0;
    PLIMSOLL_ASSIGN(const double ratio, ratio_of(flags_, opened, search, target_, before.multiplications));
    final_ratio_ = ratio;
    return rounds == 1 ? ratio : 1 - std::pow(1 - ratio, 1.0 / static_cast<double>(rounds));
  }

  void take_groups(std::vector<GroupReport> now) {
    if (groups_.size() != now.size()) {
      groups_ = std::move(now);
      return;
    }
    for (size_t i = 0; i < now.size(); ++i) groups_[i].after = now[i].after;
  }

  void tell_left(const std::vector<std::string>& layers) {
    not_folded_ = layers;
    if (!layers.empty())
      message(
          flags_,
          fmt::format("note: constants of channels that left could not be folded into {}: no bias there can take them",
                      fmt::join(layers, ", ")));
  }

  std::string goal_flag() const {
    return flags_.ratio             ? "--ratio"
           : flags_.free            ? "--free"
           : flags_.multiplications ? "--multiplications"
                                    : "--target";
  }

  Status train(int64_t epochs, int64_t round, int64_t rounds) {
    if (rounds > 1) message(flags_, fmt::format("round {}/{}", round, rounds));
    return tune_file(flags_, flags_.output, epochs);
  }

  PruneFlags& flags_;
  Bytes target_ = 0;
  Choice choice_;
  std::optional<double> final_ratio_;
  std::vector<GroupReport> groups_;
  std::vector<std::string> not_folded_;
};

}  // namespace

void add_shrink_prune(CLI::App& shrink, std::map<CLI::App*, Action>& actions) {
  auto flags = std::make_shared<PruneFlags>();
  CLI::App* command =
      shrink.add_subcommand("prune", "remove whole channels, filters, units and heads: those that matter least");
  add_shrink_flags(*command, *flags);
  command->add_option("--ratio", flags->ratio, "the share of the channels of each group that leaves: 0.5")
      ->check(CLI::Range(0.0, 0.99));
  command->add_option("--target", flags->target,
                      "the bytes of the file, without the optimizer's state, that must be reached: 1MiB");
  command
      ->add_option("--multiplications", flags->multiplications,
                   "the share of the multiplications of a prediction that stays: 0.5")
      ->check(CLI::Range(0.001, 1.0));
  command->add_flag("--free", flags->free, "remove only channels that are constant, so that predictions stay");
  command
      ->add_option("--importance", flags->importance,
                   "what decides which channels leave: magnitude of the weights, batchnorm (its scale), or loss (the "
                   "first-order effect on the loss of --data)")
      ->check(CLI::IsMember({"magnitude", "batchnorm", "loss"}))
      ->capture_default_str();
  command->add_option("--importance-batches", flags->batches, "batches of --data that --importance loss reads")
      ->check(whole_above_zero())
      ->capture_default_str();
  command
      ->add_option("--across", flags->across,
                   "compare channels inside each group, which then all lose the same share, or in the whole model")
      ->check(CLI::IsMember({"group", "model"}))
      ->capture_default_str();
  command
      ->add_option("--multiple", flags->multiple,
                   "widths are rounded to multiples of this; auto: what the device's kernels like")
      ->check([](const std::string& text) {
        const auto number = read_number<int64_t>(text);
        return text == "auto" || (number && *number > 0) ? std::string()
                                                         : "takes auto or a whole number above 0, got '" + text + "'";
      })
      ->capture_default_str();
  add_tuning_flags(*command, *flags);
  command->add_option("--rounds", flags->rounds, "remove in this many rounds, with a part of --epochs after each")
      ->check(whole_above_zero())
      ->capture_default_str();
  command->footer(
      "Example: plimsoll shrink prune model.keras --ratio 0.5 -o small.keras\n"
      "         plimsoll shrink prune model.keras --multiplications 0.5 --importance loss --data x.npy,y.npy --epochs "
      "3 "
      "-o small.keras");
  actions[command] = [flags] {
    install_signal_handlers("interrupted: finishing this batch, then saving", flags->json);
    return PruneCommand(*flags).run();
  };
}

}  // namespace plimsoll::engine
