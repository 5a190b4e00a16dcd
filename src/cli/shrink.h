// The ways of `plimsoll shrink`: one file and one row of the table in shrink.cpp per way.
#pragma once

#include "api/shrink_price.h"
#include "cli/data_flags.h"
#include "shrink/prune.h"

namespace plimsoll::engine {

// Each function adds one subcommand of `shrink` with its flags, and stores its action in `actions`.
void add_shrink_distill(CLI::App& shrink, std::map<CLI::App*, Action>& actions);
void add_shrink_quantize(CLI::App& shrink, std::map<CLI::App*, Action>& actions);
void add_shrink_resize(CLI::App& shrink, std::map<CLI::App*, Action>& actions);
void add_shrink_prune(CLI::App& shrink, std::map<CLI::App*, Action>& actions);

// The flags of all ways.
struct ShrinkFlags : CommonFlags {
  std::string output;
  Bytes resident_at_start = 0;  // what the process held before it read a model: the overhead of a plan includes it
  int64_t epochs = 0, rounds = 1, steps_per_epoch = 0;  // of the training after it; epochs = 0: none
};
// Adds MODEL, --output, and the flags for the device, the budget and the batch.
void add_shrink_flags(CLI::App& command, ShrinkFlags& flags);
// Adds --data and its relatives, --epochs and --steps-per-epoch.
void add_tuning_flags(CLI::App& command, ShrinkFlags& flags);

// The flags of `shrink` without a way.
struct SearchFlags : ShrinkFlags {
  std::string target, target_memory, target_time, phase = "training";
  std::optional<double> max_drop;
};
void add_search_flags(CLI::App& command, SearchFlags& flags);
Result<int> search_smaller(SearchFlags& flags);

// A model that is to be shrunk.
struct Opened {
  std::optional<KerasArchive> archive;
  HeldModel held;
  FileBytes bytes;  // of the .keras file with all of it

  const KerasArchive* source() const { return archive ? &*archive : nullptr; }
};
// Checks the flags, and reads the model with its weights inside the budget.
Result<Opened> open_to_shrink(ShrinkFlags& flags);

// Prices a model inside the budget. Data that it does not take are left out.
Result<ShrinkPrice> price_inside(const ShrinkFlags& flags, const HeldModel& held, const KerasArchive* source);

struct Figures {  // loss first
  std::vector<Metric> before, after;
};
// Evaluates the file on the validation data, or on the data if there are none.
Result<std::vector<Metric>> evaluate_file(const ShrinkFlags& flags, const std::string& path);
// Trains the file inside the budget, and writes it back.
Status tune_file(const ShrinkFlags& flags, const std::string& path, int64_t epochs);

// Returns weight * gradient of some batches of the data, added up, for a model file. Its weights stay as they are.
Result<Effects> measure_effects(const ShrinkFlags& flags, const std::string& path, int64_t batches);

// A bound on the bytes of a model without the optimizer's state: file_bytes(), less what it is too large by. That
// depends on the number of weights alone, except for some padding.
double estimated_bytes(const Opened& opened, const HeldModel& made);

// Reads the value of --importance.
Importance importance_of(const std::string& name);

// The groups of channels, as text and as JSON.
std::string groups_text(const std::vector<GroupReport>& groups);
nlohmann::ordered_json groups_json(const std::vector<GroupReport>& groups);
// The error of a model of which no channel can leave, with the reason of each group. `flag`: what asked for it.
Error no_group_can_be_cut(const std::vector<GroupReport>& groups, const std::string& flag);

// Prints what became of the model: the table, or JSON with `more` before it.
int report_shrunk(const ShrinkFlags& flags, const ShrinkPrice& before, ShrinkPrice after, const Figures& figures,
                  nlohmann::ordered_json more, const std::string& text);

}  // namespace plimsoll::engine
