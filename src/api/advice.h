// Makes the advice of a plan's report (report/advice.h): prices other batches, precisions, budgets, models and cards by
// planning them.
#pragma once

#include "api/pricing.h"
#include "report/advice.h"

namespace plimsoll::engine {

// A flag with its value, as the user would type it: {"--batch-size", "32"}.
using TypedFlag = std::pair<std::string, std::string>;
// The words of a command line, quoted for a shell where needed.
std::string flags_text(const std::vector<TypedFlag>& flags);
// `flags` with those of `changes` in place of flags of the same name.
std::vector<TypedFlag> with_changes(std::vector<TypedFlag> flags, const std::vector<TypedFlag>& changes);

struct AdviceRequest {
  std::string model;             // as the user typed it
  std::vector<TypedFlag> flags;  // all other flags of the command
  std::vector<int64_t> batches;  // --batch-size 8,16,32; empty: some around the batch of the run
  int64_t max_batch = 0;         // --max-batch: also the largest batch that fits, up to this; 0: not asked for
  bool batch_table = true;       // `fit` needs none
  bool changed_models = true;    // remedies of another model, which only `plan` takes
  bool frontier = false;         // plans at several budgets
};

// Returns whether so many nodes take long to plan that fewer variations should be tried.
bool takes_long_to_plan(const Plan& plan);

// Advises on the run, whose plan was searched.
Advice advise(Run& run, const AdviceRequest& request);

// Returns the remedies, best first.
std::vector<PricedRemedy> price_remedies(const Pricing& pricing, const Priced& now, const AdviceRequest& request);

// Fills Advice::command: what to type next. If the plan does not fit, the command has the combination of flags that
// changes the training least and fits.
void choose_command(const Pricing& pricing, const Priced& now, const AdviceRequest& request, Advice& advice);

// Plans the run for each card that Plimsoll has a profile of.
Result<std::vector<CardPrice>> price_cards(Run& run);

// One line per remedy, for the error of a model that does not fit.
std::vector<std::string> remedy_lines(const Advice& advice);

}  // namespace plimsoll::engine
