// What the commands share: flags, where messages go, how errors end.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <charconv>
#include <string>
#include <vector>

#include "api/run.h"

namespace plimsoll::engine {

struct CommonFlags {
  RunOptions options;  // what the flags say, once resolve() has read the texts
  std::string budget_text, host_budget_text, batch_text = "32", micro_text = "auto", batchnorm = "exact";
  std::vector<std::string> forbid, allow;
  std::string optimizer, loss, input_shape;
  std::vector<std::string> metrics;
  double learning_rate = 0;
  bool json = false, quiet = false;
  const CLI::Option* batch_option = nullptr;  // --batch-size, where the command trains

  // Text to values; kUsage for what does not parse. The options refer to these flags afterwards, for messages.
  Status resolve(Mode mode);

 private:
  Status resolve_batch();
  Status resolve_memory();
  Status resolve_levers();
  Status resolve_overrides();
};

// MODEL, budgets, the device and what it computes in, --json and --quiet.
void add_model_flags(CLI::App& command, CommonFlags& flags);
// --batch-size, --micro-batch, levers, compile overrides.
void add_training_flags(CLI::App& command, CommonFlags& flags);

// All of a text as a number, if it is one.
template <typename Number>
std::optional<Number> read_number(const std::string& text) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

// Checks of numbers, with a message that says what is wanted: any number, or whole ones.
CLI::Validator above_zero();
CLI::Validator whole_above_zero();
CLI::Validator whole_from_zero();
// Whether a file to be written is called what it will be: .keras, .npy.
Status check_ending(const std::string& path, const std::string& ending, const std::string& flag);

// Every flag can also be set by an environment variable: --batch-size by PLIMSOLL_BATCH_SIZE.
void name_environment(CLI::App& command);

// Of a flag that takes one value and is given twice, the last one counts: scripts append flags to those of others.
void last_one_wins(CLI::App& command);

// `--data ""` is what a script with an unset variable says: an error, not a flag left out.
void refuse_empty_values(CLI::App& command);

// What the parser refused, in our words; `command` is the first word of the command line.
Error usage_error(const CLI::App& app, const CLI::ParseError& refused, const std::string& command);

// "'auc' is asked for, but Plimsoll does not compute it", where that is so; also for "val_auc". Else "".
std::string skipped_text(const Model& model, const std::string& metric);

// Each command adds its flags and leaves its action in `run`; the action's return is the exit code.
using Action = std::function<Result<int>()>;
void add_plan_command(CLI::App& app, std::map<CLI::App*, Action>& actions);
void add_fit_command(CLI::App& app, std::map<CLI::App*, Action>& actions);
void add_evaluate_command(CLI::App& app, std::map<CLI::App*, Action>& actions);
void add_predict_command(CLI::App& app, std::map<CLI::App*, Action>& actions);
void add_doctor_command(CLI::App& app, std::map<CLI::App*, Action>& actions);

// Set by the first signal that asks to end (cli/signals.h).
const std::atomic<bool>& stop_requested();

// The answer, to stdout; whether it arrived is asked at the end. What names from files could do to a terminal is made
// harmless here and in tell().
void answer(const std::string& text);
// To stderr. That nobody reads it any more stops nothing.
void tell(const std::string& text);
void draw(const std::string& text);  // the same for a terminal, with controls of our own: names in it must be printable
// Whether stderr is a terminal on which a line can be drawn again.
bool can_redraw();
void message(const CommonFlags& flags, const std::string& text);  // a line of it, unless --quiet

}  // namespace plimsoll::engine
