#include "cli/fit_flags.h"

#include <fmt/format.h>

#include <algorithm>

namespace plimsoll::engine {
namespace {

constexpr int64_t kMostTraced = 1000;

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text)
    if (c == ':')
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

std::optional<int64_t> patience_of(const std::string& text) {
  const auto value = read_number<int64_t>(text);
  return value && *value >= 0 && *value < 1'000'000'000 ? value : std::nullopt;
}

Result<EarlyStopping> parse_early_stopping(const std::string& text) {
  const std::vector<std::string> parts = split(text);
  const auto patience = parts.size() > 1 ? patience_of(parts[1]) : std::nullopt;
  const bool restore = parts.size() == 3 && parts[2] == "restore-best";
  if (parts[0].empty() || !patience || parts.size() > 3 || (parts.size() == 3 && !restore))
    return fail(Error{ErrorCode::kUsage,
                      fmt::format("--early-stopping takes METRIC:PATIENCE[:restore-best], got '{}'", text),
                      {},
                      {"--early-stopping val_loss:3", "--early-stopping val_loss:3:restore-best"}});
  return EarlyStopping{parts[0], *patience, restore};
}

Result<ReduceLrOnPlateau> parse_reduce_lr(const std::string& text) {
  const std::vector<std::string> parts = split(text);
  const auto patience = parts.size() == 3 ? patience_of(parts[1]) : std::nullopt;
  const double factor = parts.size() == 3 ? read_number<double>(parts[2]).value_or(0) : 0;
  if (parts[0].empty() || !patience || !(factor > 0 && factor < 1))
    return fail(Error{ErrorCode::kUsage,
                      fmt::format("--reduce-lr-on-plateau takes METRIC:PATIENCE:FACTOR with a factor between 0 and 1, "
                                  "got '{}'",
                                  text),
                      {},
                      {"--reduce-lr-on-plateau val_loss:3:0.2"}});
  return ReduceLrOnPlateau{parts[0], *patience, factor};
}

SaveBest parse_save_best(const std::string& text) {
  for (const std::string_view ending : {".keras:", ".h5:"})
    if (const size_t at = text.rfind(ending); at != std::string::npos)
      return {text.substr(at + ending.size()), text.substr(0, at + ending.size() - 1)};
  return {"", text};
}

// Fails if the run does not compute `metric`: a callback that watches it would never act.
Status check_metric(const std::string& flag, const std::string& metric, const Model& model,
                    const std::vector<Tally>& tallies, bool validates) {
  std::vector<std::string> names;
  bool vector = false;
  for (const std::string prefix : {"", "val_"})
    for (const Tally& tally : tallies) {
      if (!prefix.empty() && !validates) continue;
      names.push_back(prefix + tally.name);
      vector = vector || (tally.elements && names.back() == metric);
    }
  if (vector)
    return fail(ErrorCode::kUsage, fmt::format("{}: '{}' is a vector, and vectors have no order", flag, metric));
  if (std::find(names.begin(), names.end(), metric) != names.end()) return {};
  Error error{ErrorCode::kUsage,
              fmt::format("{}: this run does not compute '{}'", flag, metric),
              {fmt::format("it computes {}", fmt::join(names, ", "))},
              {}};
  if (const std::string why = skipped_text(model, metric); !why.empty()) error.fact(why);
  if (!validates && metric.starts_with("val_")) error.remedy("--validation-data x_val.npy,y_val.npy");
  return fail(std::move(error));
}

}  // namespace

Result<int64_t> parse_every(const std::string& text) {
  if (text == "epoch") return 0;
  const auto steps = read_number<int64_t>(text);
  if (!steps || *steps <= 0 || text.size() > 12)
    return fail(ErrorCode::kUsage,
                fmt::format("--checkpoint-every takes a number of steps or 'epoch', got '{}'", text));
  return *steps;
}

Result<std::optional<StepRange>> parse_trace(const FitFlags& flags) {
  const size_t colon = flags.profile.find(':');
  if (colon == std::string::npos) {
    if (flags.profile_output.empty()) return std::optional<StepRange>();
    return fail(Error{ErrorCode::kUsage,
                      "-o needs the steps to trace",
                      {},
                      {fmt::format("--profile 10:20 -o {}", flags.profile_output)}});
  }
  const auto first = read_number<int64_t>(flags.profile.substr(0, colon)),
             last = read_number<int64_t>(flags.profile.substr(colon + 1));
  if (!first || !last || *first < 1 || *last < *first || *last - *first >= kMostTraced)
    return fail(Error{ErrorCode::kUsage,
                      fmt::format("--profile takes FIRST:LAST, at most {} steps counted from 1, got '{}'", kMostTraced,
                                  flags.profile),
                      {},
                      {"--profile 10:20 -o trace.json"}});
  if (flags.profile_output.empty())
    return fail(Error{ErrorCode::kUsage,
                      "--profile FIRST:LAST needs a file for the trace",
                      {},
                      {fmt::format("--profile {} -o trace.json", flags.profile)}});
  return std::optional<StepRange>({*first, *last});
}

Result<CallbackOptions> parse_callbacks(const FitFlags& flags) {
  CallbackOptions callbacks;
  if (!flags.early_stopping.empty()) {
    PLIMSOLL_ASSIGN(callbacks.early_stopping, parse_early_stopping(flags.early_stopping));
  }
  if (!flags.reduce_lr.empty()) {
    PLIMSOLL_ASSIGN(callbacks.reduce_lr, parse_reduce_lr(flags.reduce_lr));
  }
  if (!flags.save_best.empty()) {
    callbacks.save_best = parse_save_best(flags.save_best);
    PLIMSOLL_TRY(save_format(callbacks.save_best->path, "--save-best"));
  }
  return callbacks;
}

Status complete_callbacks(CallbackOptions& callbacks, const std::vector<Tally>& tallies, bool validates,
                          const Model& model) {
  const auto check = [&](const char* flag, const std::string& metric) {
    return check_metric(flag, metric, model, tallies, validates);
  };
  if (callbacks.early_stopping) PLIMSOLL_TRY(check("--early-stopping", callbacks.early_stopping->metric));
  if (callbacks.reduce_lr) {
    PLIMSOLL_TRY(check("--reduce-lr-on-plateau", callbacks.reduce_lr->metric));
    if (!model.optimizer().schedule.is_null())
      return fail(Error{
          ErrorCode::kUsage,
          "--reduce-lr-on-plateau cannot be combined with the learning rate schedule of this model's optimizer",
          {"Keras refuses this combination, too"},
          {"--learning-rate 0.001   uses a constant rate instead of the schedule", "remove --reduce-lr-on-plateau"}});
  }
  if (!callbacks.save_best) return {};
  std::string& metric = callbacks.save_best->metric;
  if (metric.empty())
    metric = callbacks.early_stopping ? callbacks.early_stopping->metric : validates ? "val_loss" : "loss";
  return check("--save-best", metric);
}

namespace {

// "auto", which gives an empty list, or "32,64,128".
std::vector<int64_t> parse_buckets(const std::string& text) {
  std::vector<int64_t> lengths;
  if (text == "auto") return lengths;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const auto steps = read_number<int64_t>(text.substr(at, comma - at));
    if (!steps || *steps < 1)
      throw CLI::ValidationError("--buckets", fmt::format("takes auto, or lengths such as 32,64,128, got '{}'", text));
    lengths.push_back(*steps);
    at = comma + 1;
  }
  return lengths;
}

void add_bucket_flags(CLI::App& command, DataOptions& options) {
  CLI::Option* const buckets = command.add_option_function<std::string>(
      "--buckets", [&](const std::string& text) { options.buckets = parse_buckets(text); },
      "lengths to train sequences at, 32,64,128, or auto: samples are grouped by length, and each batch is cut to the "
      "length of its group, as tf.data's bucket_by_sequence_length does");
  command.add_option("--padding", options.padding, "with --buckets: the number that fills the end of a sample")
      ->needs(buckets)
      ->capture_default_str();
}

}  // namespace

void add_fit_flags(CLI::App& command, FitFlags& flags) {
  command.add_option("--epochs", flags.epochs, "number of passes over the data")
      ->check(whole_above_zero())
      ->capture_default_str();
  command
      .add_option("--steps-per-epoch", flags.steps_per_epoch, "optimizer steps per epoch, if fewer than the data has")
      ->check(whole_above_zero());
  command
      .add_option("--shuffle", flags.options.data.shuffle,
                  "shuffle the samples before each epoch; --seed determines the order")
      ->capture_default_str();
  add_bucket_flags(command, flags.options.data);
  command.add_option("--early-stopping", flags.early_stopping,
                     "METRIC:PATIENCE[:restore-best], e.g. val_loss:3: stop when the metric has not improved for "
                     "PATIENCE epochs; restore-best: then restore the weights of the best epoch");
  command.add_option("--reduce-lr-on-plateau", flags.reduce_lr,
                     "METRIC:PATIENCE:FACTOR, e.g. val_loss:3:0.2: multiply the learning rate by FACTOR when the "
                     "metric has not improved for PATIENCE epochs");
  command.add_option("--save-best", flags.save_best,
                     "FILE.keras[:METRIC]: write the model after each epoch that is the best so far (default metric: "
                     "that of --early-stopping, else val_loss, else loss)");
  command.add_option("--checkpoint", flags.checkpoint, "folder for checkpoints; --resume continues from them");
  command
      .add_option("--checkpoint-every", flags.checkpoint_every,
                  "a number N: write a checkpoint every N steps; epoch: after each epoch")
      ->capture_default_str();
  command
      .add_option("--keep-checkpoints", flags.keep_checkpoints, "number of checkpoints to keep, including the newest")
      ->check(whole_above_zero())
      ->capture_default_str();
  command.add_flag("--resume", flags.resume, "continue from the newest undamaged checkpoint, if there is one");
  command.add_option("--save", flags.save,
                     "write the trained model to this file: .keras; .weights.h5: the weights alone; .h5: if "
                     "the model came from such a file");
  command.add_option("--plan", flags.plan, "use this plan, saved by plimsoll plan --save");
  command.add_option("--seed", flags.options.seed, "random seed for shuffling, dropout and initial weights")
      ->check(whole_from_zero())
      ->capture_default_str();
  command.add_option("--log", flags.log, "write a log of the run to this file, one JSON object per line");
  command.add_option("--csv-log", flags.csv_log,
                     "write loss and metrics of each epoch to this file, like Keras's CSVLogger");
  command.add_flag("--profile", flags.profile,
                   "print the measured and the predicted time of each node; FIRST:LAST, e.g. 10:20: write a trace of "
                   "these steps to the file of -o");
  command.add_option("-o,--profile-output", flags.profile_output,
                     "file for the trace of --profile FIRST:LAST, for ui.perfetto.dev and chrome://tracing");
  command.add_option("--tensorboard", flags.tensorboard,
                     "write event files to this folder with the names of Keras's TensorBoard callback, memory against "
                     "the budget, and what the time of a step went to");
  command
      .add_option("--tensorboard-histograms", flags.tensorboard_histograms,
                  "with --tensorboard: histograms of the weights every so many epochs (histogram_freq of Keras)")
      ->check(whole_from_zero());
  command.add_flag("--noise-scale", flags.noise_scale,
                   "estimate the gradient noise scale from the micro-batches of every 10th step, and say which batch "
                   "sizes are in range");
  command.add_option("--prometheus", flags.prometheus,
                     "keep the state of the run in this file as text for Prometheus (the textfile collector reads it)");
}

}  // namespace plimsoll::engine
