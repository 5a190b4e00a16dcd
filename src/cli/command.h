// Shared by all commands: common flags, output of answers and messages, usage errors.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <charconv>
#include <string>
#include <vector>

#include "api/run.h"

namespace plimsoll::engine {

struct CommonFlags {
  RunOptions options;  // filled in by resolve() from the texts below
  std::string budget_text, host_budget_text, batch_text = "32", micro_text = "auto", batchnorm = "exact";
  std::vector<std::string> forbid, allow;
  std::string optimizer, loss, input_shape;
  std::vector<std::string> metrics;
  double learning_rate = 0;
  bool json = false, quiet = false;
  const CLI::Option* batch_option = nullptr;  // --batch-size; null for commands that do not train

  // Parses the texts into `options`. Fails with kUsage if one does not parse. `options.note` refers to these flags
  // afterwards, so they must outlive the options.
  Status resolve(Mode mode);

 private:
  Status resolve_batch();
  Status resolve_memory();
  Status resolve_levers();
  Status resolve_overrides();
};

// The help of every command's MODEL.
inline constexpr const char* kModelHelp =
    "a model file of Keras (.keras, .h5, .json, a SavedModel folder), or a built-in name";
// Adds --weights, and the flags for budgets, device, precision, input shape, loss and metrics, and --json and --quiet.
void add_model_flags(CLI::App& command, CommonFlags& flags);
// Adds --batch-size, --micro-batch, the lever flags, --optimizer and --learning-rate.
void add_training_flags(CLI::App& command, CommonFlags& flags);

// Returns the number if the whole text is one.
template <typename Number>
std::optional<Number> read_number(const std::string& text) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

// Validators of numbers. Their messages say what the flag takes.
CLI::Validator above_zero();
CLI::Validator whole_above_zero();
CLI::Validator whole_from_zero();
// Fails with kUsage if the name of an output file does not end in `ending` (.keras, .npy).
Status check_ending(const std::string& path, const std::string& ending, const std::string& flag);

// Every flag can also be set by an environment variable: --batch-size by PLIMSOLL_BATCH_SIZE.
void name_environment(CLI::App& command);

// If a flag that takes one value is given twice, the last value counts. Wrapper scripts append flags.
void last_one_wins(CLI::App& command);

// Makes `--data ""` an error. A script with an unset variable would write it, and it must not mean "no flag".
void refuse_empty_values(CLI::App& command);

// Turns an error of the CLI11 parser into our own message. `command` is the first word of the command line.
Error usage_error(const CLI::App& app, const CLI::ParseError& refused, const std::string& command);

// Returns "the metric 'auc' is requested, but Plimsoll does not compute it" for a skipped metric (also for "val_auc"),
// else "".
std::string skipped_text(const Model& model, const std::string& metric);

// Each function adds one command with its flags, and stores the command's action in `actions`. The action returns the
// exit code.
using Action = std::function<Result<int>()>;
void add_plan_command(CLI::App& app, std::map<CLI::App*, Action>& actions);
void add_fit_command(CLI::App& app, std::map<CLI::App*, Action>& actions);
void add_evaluate_command(CLI::App& app, std::map<CLI::App*, Action>& actions);
void add_predict_command(CLI::App& app, std::map<CLI::App*, Action>& actions);
void add_reduce_command(CLI::App& app, std::map<CLI::App*, Action>& actions);
void add_convert_command(CLI::App& app, std::map<CLI::App*, Action>& actions);
// `actions` must outlive the action, which runs those of the subcommands.
void add_shrink_command(CLI::App& app, std::map<CLI::App*, Action>& actions);
void add_doctor_command(CLI::App& app, std::map<CLI::App*, Action>& actions);
void add_top_command(CLI::App& app, std::map<CLI::App*, Action>& actions);
void add_profile_command(CLI::App& app, std::map<CLI::App*, Action>& actions);
void add_precision_command(CLI::App& app, std::map<CLI::App*, Action>& actions);
void add_explain_command(CLI::App& app, std::map<CLI::App*, Action>& actions);

// True once a signal has asked the program to stop (cli/signals.h).
const std::atomic<bool>& stop_requested();

// Writes the command's result to stdout. Write errors are checked once, when the program ends. Here and in tell(),
// control characters in names from files are made harmless for the terminal.
void answer(const std::string& text);
// Writes to stderr. Errors, such as a closed pipe, are ignored.
void tell(const std::string& text);
// Like tell(), but `text` may contain our own terminal controls. Names in it must already be printable.
void draw(const std::string& text);
// Returns whether stderr is a terminal on which a line can be drawn again.
bool can_redraw();
void message(const CommonFlags& flags, const std::string& text);  // writes one line to stderr, unless --quiet

}  // namespace plimsoll::engine
