// plimsoll shrink MODEL --target ...: tries several ways to reach a goal, and keeps the one that predicts best.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "api/planning_limit.h"
#include "base/json.h"
#include "base/json_text.h"
#include "cli/metric_text.h"
#include "cli/shrink.h"
#include "cli/shrink_ratio.h"
#include "cli/signals.h"
#include "model/what_if.h"
#include "shrink/resize.h"

namespace plimsoll::engine {
namespace {

// What a smaller model must not exceed.
struct Goal {
  enum class Kind { kFile, kMemory, kTime } kind = Kind::kFile;
  double most = 0;  // bytes or seconds
  std::string flag;
  bool inference = false;

  Result<double> size(const SearchFlags& flags, const Opened& opened, const HeldModel& held) const {
    if (kind == Kind::kFile) return estimated_bytes(opened, held);
    RunOptions options = flags.options;
    options.limit_process = false;
    options.data = DataOptions();
    PLIMSOLL_ASSIGN(const ShrinkPrice price, price_shrunk(held, opened.source(), options));
    return size(price);
  }
  double size(const ShrinkPrice& price) const {
    const PhasePrice& phase = inference || !price.training ? price.inference : *price.training;
    if (kind == Kind::kFile) return static_cast<double>(price.file.without_state);
    return kind == Kind::kMemory ? static_cast<double>(phase.peak_bytes) : phase.seconds;
  }
  std::string shown(double value) const {
    return kind == Kind::kTime ? fmt::format("{:.3g} ms", 1e3 * value) : format_bytes(static_cast<Bytes>(value));
  }
};

// One way to make the model smaller.
struct Way {
  std::string name;
  std::vector<int64_t> input;  // of one sample; empty: as it is
  bool statistics = false;     // cuts through LayerNormalization
  Importance importance = Importance::kMagnitude;
};

struct Try {
  Way way;
  double ratio = 0;
  bool reaches = false;
  double least = 0;  // what the way can reach
  std::optional<ShrinkPrice> price;
  std::string path;  // of its file; "": it was not written
  std::vector<Metric> metrics;
  std::string note;
};

// The metric by which models are compared: the first accuracy, else the loss.
struct Quality {
  std::string name;
  double value = 0;
  bool larger = false;

  // By how much it is worse than `before`: in points of an accuracy, in percent of a loss.
  double drop(const Quality& before) const {
    if (larger) return 100 * (before.value - value);
    return before.value != 0 ? 100 * (value / before.value - 1) : value;
  }
};

Quality quality_of(const std::vector<Metric>& metrics) {
  for (const Metric& metric : metrics)
    if (metric.name.find("acc") != std::string::npos) return {metric.name, metric.value, true};
  return {metrics[0].name, metrics[0].value, false};
}

class SearchCommand {
 public:
  explicit SearchCommand(SearchFlags& flags) : flags_(flags) {}
  ~SearchCommand() {
    std::error_code ignored;
    for (const Try& one : tries_)
      if (!one.path.empty()) std::filesystem::remove(one.path, ignored);
  }

  Result<int> run() {
    PLIMSOLL_TRY(check_flags());
    PLIMSOLL_ASSIGN(Opened opened, open_to_shrink(flags_));
    PLIMSOLL_ASSIGN(ShrinkPrice before, price_inside(flags_, opened.held, opened.source()));
    before.file = opened.bytes;
    PLIMSOLL_TRY(read_goal(before));
    if (goal_.size(before) <= goal_.most)
      return fail(
          Error{ErrorCode::kUsage,
                fmt::format("{}: the model is that small already: {}", goal_.flag, goal_.shown(goal_.size(before))),
                {},
                {"a smaller target"}});
    Figures figures;
    if (has_data() && opened.held.has_weights) {
      PLIMSOLL_ASSIGN(figures.before, evaluate_file(flags_, flags_.options.model));
    }
    PLIMSOLL_ASSIGN(const std::vector<Way> ways, ways_of(opened.held));
    for (const Way& way : ways) PLIMSOLL_TRY(attempt(opened, way));
    opened.held.values.clear();
    if (std::none_of(tries_.begin(), tries_.end(), [](const Try& one) { return one.reaches; }))
      return fail(unreachable());
    if (has_data()) PLIMSOLL_TRY(train_all());
    const Try& best = choose_best();
    figures.after = best.metrics;
    PLIMSOLL_TRY(check_drop(best, figures));
    PLIMSOLL_TRY(keep(best));
    nothing_to_lose();
    auto more = ordered_object({{"chosen", best.way.name}, {"tried", tried_json()}});
    return report_shrunk(flags_, before, *best.price, figures, std::move(more), tried_table(best));
  }

 private:
  bool has_data() const { return !flags_.options.data.data.empty(); }

  Status check_flags() const {
    const int goals = !flags_.target.empty() + !flags_.target_memory.empty() + !flags_.target_time.empty();
    if (flags_.options.model.empty())
      return fail(Error{ErrorCode::kUsage,
                        "shrink needs a MODEL, or a way to shrink it",
                        {},
                        {"plimsoll shrink model.keras --target 1MiB -o small.keras", "plimsoll shrink --help"}});
    if (goals != 1)
      return fail(Error{ErrorCode::kUsage,
                        goals == 0 ? "nothing says how small the model must be"
                                   : "--target, --target-memory and --target-time exclude each other",
                        {},
                        {"--target 1MiB   the bytes of the file, without the optimizer's state",
                         "--target-memory 256MiB   the peak of training", "--target-time 0.5x   a training step"}});
    if (flags_.output.empty()) return fail(Error{ErrorCode::kUsage, "--output is required", {}, {"-o small.keras"}});
    if (flags_.max_drop && !has_data())
      return fail(Error{ErrorCode::kUsage, "--max-drop needs --data", {}, {"--data x.npy,y.npy"}});
    return {};
  }

  Status read_goal(const ShrinkPrice& before) {
    goal_.inference = flags_.phase == "inference" || !before.training;
    const PhasePrice& phase = goal_.inference ? before.inference : *before.training;
    const auto bytes = [&](const std::string& flag, const std::string& text, Goal::Kind kind) -> Status {
      auto parsed = parse_bytes(text);
      if (!parsed) parsed.error().what = flag + ": " + parsed.error().what;
      PLIMSOLL_TRY(parsed);
      goal_.kind = kind;
      goal_.most = static_cast<double>(*parsed);
      goal_.flag = flag + " " + text;
      return {};
    };
    if (!flags_.target.empty()) return bytes("--target", flags_.target, Goal::Kind::kFile);
    if (!flags_.target_memory.empty()) return bytes("--target-memory", flags_.target_memory, Goal::Kind::kMemory);
    const std::string& text = flags_.target_time;
    const auto factor = read_number<double>(text.ends_with("x") ? text.substr(0, text.size() - 1) : text);
    if (!factor || !text.ends_with("x") || !(*factor > 0) || !(*factor < 1))
      return fail(Error{ErrorCode::kUsage,
                        fmt::format("--target-time takes a factor below 1, got '{}'", text),
                        {},
                        {"--target-time 0.5x"}});
    goal_.kind = Goal::Kind::kTime;
    goal_.most = *factor * phase.seconds;
    goal_.flag = "--target-time " + text;
    return {};
  }

  Result<std::vector<Way>> ways_of(const HeldModel& held) const {
    std::vector<Way> ways{{"prune by magnitude", {}, false, Importance::kMagnitude}};
    if (has_data() && held.has_weights && held.options.needs_training)
      ways.push_back({"prune by effect on the loss", {}, false, Importance::kLoss});
    PLIMSOLL_ASSIGN(const ChannelMap exact, find_channels(held.description, held.model, false));
    PLIMSOLL_ASSIGN(const ChannelMap all, find_channels(held.description, held.model, true));
    const auto open = [](const ChannelMap& map) {
      return std::count_if(map.groups.begin(), map.groups.end(),
                           [](const auto& group) { return group.locked.empty(); });
    };
    if (open(all) > open(exact)) ways.push_back({"narrower, through normalisation", {}, true, Importance::kMagnitude});
    const std::vector<int64_t> sample = declared_input(held.description);
    if (goal_.kind == Goal::Kind::kFile || sample.size() != 3) return ways;
    for (const auto& [part, name] : {std::pair{3, "3/4"}, {2, "1/2"}}) {
      std::vector<int64_t> smaller = sample;
      smaller[0] = smaller[0] * part / 4;
      smaller[1] = smaller[1] * part / 4;
      if (std::min(smaller[0], smaller[1]) < 8) continue;
      ways.push_back(
          {fmt::format("input of {}: {}x{}", name, smaller[0], smaller[1]), smaller, false, Importance::kMagnitude});
    }
    return ways;
  }

  // Finds how much must leave, and writes that model beside the output.
  Status attempt(const Opened& opened, const Way& way) {
    message(flags_, fmt::format("trying: {}", way.name));
    Effects effects;
    if (way.importance == Importance::kLoss) {
      PLIMSOLL_ASSIGN(effects, measure_effects(flags_, flags_.options.model, 8));
    }
    Try made{way, 0, false, 0, {}, "", {}, ""};
    PLIMSOLL_ASSIGN(const auto smaller, within_limit(flags_.options, reading_limit(flags_.options),
                                                     [&] { return shrunk(opened, way, effects, made); }));
    if (!smaller) {
      tries_.push_back(std::move(made));
      return {};
    }
    PLIMSOLL_ASSIGN(made.price, price_inside(flags_, *smaller, opened.source()));
    PLIMSOLL_ASSIGN(made.price->file, measured_bytes(*smaller, opened.source(), flags_.output));
    made.reaches = goal_.size(*made.price) <= goal_.most;
    if (!way.input.empty() && has_data()) {
      made.note = "needs data of that size: plimsoll reduce --resolution";
      made.reaches = false;
    }
    if (made.reaches) {
      made.path = flags_.output;
      made.path.insert(made.path.rfind(".keras"), fmt::format(".try{}", tries_.size() + 1));
      PLIMSOLL_TRY(write_held(*smaller, opened.source(), made.path));
    }
    tries_.push_back(std::move(made));
    return {};
  }

  // Returns none if the way does not reach the goal, or does not work with this model.
  Result<std::optional<HeldModel>> shrunk(const Opened& opened, const Way& way, const Effects& effects, Try& made) {
    const HeldModel* held = &opened.held;
    std::optional<HeldModel> resized;
    if (!way.input.empty()) {
      WhatIf what_if;
      what_if.input_shape = way.input;
      auto description = change(held->description, what_if);
      auto carried =
          description ? carry_over(*held, std::move(*description)) : tl::make_unexpected(description.error());
      if (!carried) {
        made.note = "the model does not take this input";
        return std::nullopt;
      }
      resized = std::move(carried->model);
      held = &*resized;
    }
    PLIMSOLL_ASSIGN(const ChannelMap map, find_channels(held->description, held->model, way.statistics));
    const ChannelValues values = channel_values(*held, map);
    Choice choice;
    choice.multiple = multiple_;
    if (multiple_ == 0) {
      PLIMSOLL_ASSIGN(const auto backend, open_backend(flags_.options));
      choice.multiple = multiple_ = preferred_multiple(backend->device());
    }
    PruneSearch search(*held, map, values, scores(*held, map, way.importance, effects), choice);
    const auto size = [&](const HeldModel& one) { return goal_.size(flags_, opened, one); };
    PLIMSOLL_ASSIGN(const PruneSearch::Found found, search.find(goal_.most, size));
    made.least = found.least;
    if (!found.ratio) return std::nullopt;
    made.ratio = *found.ratio;
    const std::vector<bool> keep = search.keep(made.ratio);
    HeldModel copy = *held;
    fold_constants(copy, map, values, keep);
    PLIMSOLL_ASSIGN(HeldModel cut_model, cut(copy, map, keep, true));
    return cut_model;
  }

  Status train_all() {
    for (Try& one : tries_) {
      if (!one.reaches) continue;
      message(flags_, fmt::format("training: {}", one.way.name));
      if (flags_.epochs > 0) PLIMSOLL_TRY(tune_file(flags_, one.path, flags_.epochs));
      PLIMSOLL_ASSIGN(one.metrics, evaluate_file(flags_, one.path));
    }
    return {};
  }

  const Try& choose_best() const {
    const Try* best = nullptr;
    for (const Try& one : tries_) {
      if (!one.reaches) continue;
      const auto better = [&] {
        // Without data: another input size only if nothing else reaches the goal, then the one that loses least.
        if (one.way.input.empty() != best->way.input.empty()) return one.way.input.empty();
        if (one.metrics.empty() || best->metrics.empty()) return one.price->parameters > best->price->parameters;
        const Quality a = quality_of(one.metrics), b = quality_of(best->metrics);
        return a.larger ? a.value > b.value : a.value < b.value;
      };
      if (best == nullptr || better()) best = &one;
    }
    return *best;
  }

  Status check_drop(const Try& best, const Figures& figures) const {
    if (!flags_.max_drop || figures.before.empty() || best.metrics.empty()) return {};
    const Quality before = quality_of(figures.before), after = quality_of(best.metrics);
    const double drop = after.drop(before);
    if (drop <= *flags_.max_drop) return {};
    const char* unit = after.larger ? "points" : "percent";
    return fail(Error{ErrorCode::kDoesNotFit,
                      fmt::format("--max-drop {}: the best model found loses {:.2f} {} of {}", *flags_.max_drop, drop,
                                  unit, after.name),
                      {fmt::format("{}: {} {:.4f}, before {:.4f}; nothing was written", best.way.name, after.name,
                                   after.value, before.value)},
                      {fmt::format("--max-drop {:.2f}", drop), "more --epochs", "a larger target"}});
  }

  Error unreachable() const {
    const Try* best = nullptr;
    for (const Try& one : tries_)
      if (one.least > 0 && (best == nullptr || one.least < best->least)) best = &one;
    Error error{ErrorCode::kDoesNotFit, fmt::format("{} cannot be reached", goal_.flag), {}, {}};
    for (const Try& one : tries_)
      error.fact(one.least > 0 ? fmt::format("{}: at least {}{}", one.way.name, goal_.shown(one.least),
                                             one.note.empty() ? "" : "; " + one.note)
                               : fmt::format("{}: {}", one.way.name, one.note));
    if (best != nullptr) error.remedy(fmt::format("a target of {} or more", goal_.shown(best->least)));
    return error.remedy("plimsoll shrink resize --drop-layer NAME or --kernel N");
  }

  Status keep(const Try& best) const {
    std::error_code failed;
    std::filesystem::rename(best.path, flags_.output, failed);
    if (failed)
      return fail(ErrorCode::kWriteFailed, fmt::format("cannot write {}: {}", flags_.output, failed.message()));
    return {};
  }

  nlohmann::ordered_json tried_json() const {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const Try& one : tries_) {
      list.push_back(ordered_object({{"way", one.way.name}, {"reaches", one.reaches}, {"ratio", one.ratio}}));
      if (one.price) list.back()["price"] = price_json(*one.price);
      if (!one.metrics.empty()) list.back()["metrics"] = metrics_json(one.metrics);
      if (!one.note.empty()) list.back()["note"] = one.note;
    }
    return list;
  }

  std::string tried_table(const Try& best) const {
    std::string text = fmt::format("  {:<34}{:>9}{:>12}{:>14}{:>12}{:>12}\n", "tried", "removed", "file", "peak",
                                   "time", has_data() ? "result" : "");
    for (const Try& one : tries_) {
      if (!one.price) {
        text += fmt::format("  {:<34}{}\n", one.way.name,
                            one.note.empty() ? fmt::format("at least {}", goal_.shown(one.least)) : one.note);
        continue;
      }
      const PhasePrice& phase = goal_.inference || !one.price->training ? one.price->inference : *one.price->training;
      const std::string result = one.metrics.empty() ? "" : fmt::format("{:.4f}", quality_of(one.metrics).value);
      text += fmt::format("{} {:<34}{:>9}{:>12}{:>14}{:>12}{:>12}{}\n", &one == &best ? ">" : " ", one.way.name,
                          fmt::format("{:.0f} %", 100 * one.ratio), format_bytes(one.price->file.without_state),
                          format_bytes(phase.peak_bytes), fmt::format("{:.3g} ms", 1e3 * phase.seconds), result,
                          one.note.empty() ? "" : "  " + one.note);
    }
    return text + "\n";
  }

  SearchFlags& flags_;
  Goal goal_;
  int64_t multiple_ = 0;
  std::vector<Try> tries_;
};

}  // namespace

void add_search_flags(CLI::App& command, SearchFlags& flags) {
  add_shrink_flags(command, flags);
  command.add_option("--target", flags.target, "the bytes that the file may have, without the optimizer's state: 1MiB");
  command.add_option("--target-memory", flags.target_memory, "the memory that training may need: 256MiB");
  command.add_option("--target-time", flags.target_time, "the time that a training step may take: 0.5x");
  command.add_option("--for", flags.phase, "what --target-memory and --target-time mean: training or inference")
      ->check(CLI::IsMember({"training", "inference"}))
      ->capture_default_str();
  command
      .add_option("--max-drop", flags.max_drop,
                  "by how much the accuracy may fall, in points (the loss: in percent); else nothing is written")
      ->check(CLI::NonNegativeNumber);
  add_tuning_flags(command, flags);
}

Result<int> search_smaller(SearchFlags& flags) {
  return SearchCommand(flags).run();
}

}  // namespace plimsoll::engine
