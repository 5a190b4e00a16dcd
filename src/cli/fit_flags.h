// The flags of `fit` and what they say.
#pragma once

#include "cli/data_flags.h"
#include "execute/fit.h"

namespace plimsoll::engine {

struct FitFlags : CommonFlags {
  std::string save, checkpoint, checkpoint_every = "epoch", plan, log, csv_log, early_stopping, save_best, reduce_lr;
  int64_t epochs = 1, steps_per_epoch = 0, keep_checkpoints = 2;
  bool resume = false, profile = false;
};

void add_fit_flags(CLI::App& command, FitFlags& flags);

// --checkpoint-every: steps, 0 for the end of each epoch.
Result<int64_t> parse_every(const std::string& text);
// --early-stopping, --reduce-lr-on-plateau and --save-best; the metric of the last is empty where it is not given.
Result<CallbackOptions> parse_callbacks(const FitFlags& flags);
// Chooses what --save-best watches, and refuses what this run does not compute.
Status complete_callbacks(CallbackOptions& callbacks, const std::vector<Tally>& tallies, bool validates,
                          const Model& model);

}  // namespace plimsoll::engine
