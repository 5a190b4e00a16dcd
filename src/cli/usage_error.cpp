#include <fmt/format.h>

#include <algorithm>

#include "base/suggest.h"
#include "cli/command.h"

namespace plimsoll::engine {
namespace {

// Returns our command for a name that other programs use, or "".
std::string other_name(const std::string& command) {
  for (const auto& [other, ours] :
       {std::pair{"train", "fit"}, std::pair{"learn", "fit"}, std::pair{"test", "evaluate"},
        std::pair{"score", "evaluate"}, std::pair{"infer", "predict"}, std::pair{"inference", "predict"},
        std::pair{"summary", "plan"}, std::pair{"info", "doctor"}, std::pair{"devices", "doctor"}})
    if (command == other) return ours;
  return "";
}

std::vector<std::string> flags_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

// Names that other programs use for our flags.
constexpr std::pair<const char*, const char*> kOtherFlags[] = {
    {"--lr", "--learning-rate"},    {"--output", "--save"},     {"--out", "--save"},
    {"--gpu", "--device gpu"},      {"--cpu", "--device cpu"},  {"--memory", "--budget"},
    {"--memory-limit", "--budget"}, {"--workers", "--threads"}, {"--patience", "--early-stopping"},
    {"--train-data", "--data"}};

// Returns the flags of the command that the user may have meant.
std::vector<std::string> meant_flags(const std::string& name, const CLI::App& command) {
  for (const auto& [other, ours] : kOtherFlags) {
    const std::string flag = std::string(ours).substr(0, std::string(ours).find(' '));
    if (name == other && command.get_option_no_throw(flag) != nullptr) return {ours};
  }
  return nearest_names(name, flags_of(command));
}

// Rewords messages of the parser such as "--budget: 1 required TEXT missing".
std::string plain_text(const CLI::App& command, const CLI::ParseError& refused) {
  const std::string text = refused.what(), kind = refused.get_name();
  if (kind == "ArgumentMismatch" && text.ends_with(" missing"))
    return text.substr(0, text.find(':')) + " needs a value";
  const std::string convert = "Could not convert: ";
  const size_t equals = text.find(" = ");
  if (kind != "ConversionError" || !text.starts_with(convert) || equals == std::string::npos) return text;
  const std::string flag = text.substr(convert.size(), equals - convert.size());
  const CLI::Option* option = command.get_option_no_throw(flag);
  const bool yes_or_no = option != nullptr && option->get_type_name() == "BOOLEAN";
  return fmt::format("{} takes {}, got '{}'", flag, yes_or_no ? "true or false" : "a number", text.substr(equals + 3));
}

// Returns an example of a required flag that is missing, or "".
std::string example_of(const CLI::App& command, const std::string& text) {
  if (text == "--data is required") return "--data x.npy,y.npy";
  if (text != "--output is required") return "";
  if (command.get_name() == "quantize") return "--output model.tflite";
  return command.get_name() == "predict" ? "--output predictions.npy" : "--output small.keras";
}

}  // namespace

void last_one_wins(CLI::App& command) {
  for (CLI::Option* option : command.get_options())
    if (!option->get_lnames().empty() && option->get_expected_max() == 1 && option->get_type_size() > 0)
      option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

void refuse_empty_values(CLI::App& command) {
  for (CLI::Option* option : command.get_options())
    if (option->get_type_size() > 0)
      option->check(
          [](const std::string& value) { return value.empty() ? std::string("needs a value") : std::string(); });
}

Error usage_error(const CLI::App& app, const CLI::ParseError& refused, const std::string& first_word) {
  Error error{ErrorCode::kUsage, refused.what(), {}, {}};
  std::string command = first_word;
  auto chosen = app.get_subcommands([&](const CLI::App* one) { return one->get_name() == command; });
  if (chosen.empty()) {
    std::vector<std::string> commands;
    for (const CLI::App* one : app.get_subcommands(nullptr)) commands.push_back(one->get_name());
    if (!command.empty() && command[0] != '-') {
      error.what = fmt::format("there is no command '{}'", command);
      std::vector<std::string> meant = nearest_names(command, commands);
      if (const std::string ours = other_name(command); !ours.empty()) meant = {ours};
      for (const std::string& name : meant) error.remedy("plimsoll " + name);
    }
    return error.fact(fmt::format("commands: {}", fmt::join(commands, ", "))).remedy("plimsoll --help");
  }
  if (const auto nested = chosen[0]->get_subcommands(); !nested.empty()) {  // "shrink prune"
    chosen = {nested.front()};
    command += " " + nested.front()->get_name();
  }
  const std::string help = fmt::format("plimsoll {} --help", command);
  const std::vector<std::string> left = app.remaining(true);
  if (left.empty()) {
    error.what = plain_text(*chosen[0], refused);
    if (const std::string example = example_of(*chosen[0], error.what); !example.empty()) error.remedy(example);
    return error.remedy(help);
  }
  const auto flag =
      std::find_if(left.begin(), left.end(), [](const std::string& word) { return word.starts_with("-"); });
  if (flag == left.end()) {
    error.what = fmt::format("plimsoll {} does not take '{}'", command, fmt::join(left, " "));
    return error.remedy(help);
  }
  const std::string name = flag->substr(0, flag->find('='));
  error.what = fmt::format("plimsoll {} has no flag {}", command, name);
  for (const std::string& meant : meant_flags(name, *chosen[0])) error.remedy(meant);
  return error.remedy(help);
}

}  // namespace plimsoll::engine
