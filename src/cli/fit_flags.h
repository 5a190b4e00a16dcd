// The flags of `fit`, and the parsing of their values.
#pragma once

#include "cli/data_flags.h"
#include "execute/fit.h"
#include "report/trace.h"

namespace plimsoll::engine {

struct FitFlags : CommonFlags {
  const CLI::App* command = nullptr;
  std::string save, checkpoint, checkpoint_every = "epoch", plan, log, csv_log, early_stopping, save_best, reduce_lr;
  int64_t epochs = 1, steps_per_epoch = 0, keep_checkpoints = 2;
  bool resume = false, noise_scale = false;
  std::string profile, profile_output;  // profile: "true" for the table, "FIRST:LAST" for a trace of these steps
  std::string tensorboard, prometheus;
  int64_t tensorboard_histograms = 0;

  bool prints_profile() const { return !profile.empty() && profile.find(':') == std::string::npos; }
};

void add_fit_flags(CLI::App& command, FitFlags& flags);

// Returns the number of steps given by --checkpoint-every, or 0 for "epoch".
Result<int64_t> parse_every(const std::string& text);
// Parses --profile FIRST:LAST; nothing if no trace was asked for.
Result<std::optional<StepRange>> parse_trace(const FitFlags& flags);
// Parses --early-stopping, --reduce-lr-on-plateau and --save-best. The metric of --save-best stays empty if it was not
// given.
Result<CallbackOptions> parse_callbacks(const FitFlags& flags);
// Chooses the metric of --save-best if none was given. Fails with kUsage if a callback watches a metric that this run
// does not compute.
Status complete_callbacks(CallbackOptions& callbacks, const std::vector<Tally>& tallies, bool validates,
                          const Model& model);

}  // namespace plimsoll::engine
